// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#include "engine/state_reads.h"

#include <algorithm>
#include <chrono>
#include <utility>

#include "base/checked_math.h"
#include "base/error.h"

namespace zero {

/// On the inline CPU stream the waits of a call are part of its time on the host; elsewhere they
/// may be longer.
template <typename Call>
void StateReads::timed(const Call& call) {
  using Clock = std::chrono::steady_clock;
  const double before = device_.compute().waited_seconds();
  const Clock::time_point begin = Clock::now();
  call();
  const double host = std::chrono::duration<double>(Clock::now() - begin).count();
  const double waited = device_.compute().waited_seconds() - before;
  const double held_up = std::max(host, waited);
  cost_.seconds += held_up;
  total_seconds_ += held_up;
  cost_.waited += waited;
}

void StateReads::attach(StateReader* reader, std::size_t units) {
  reads_.resize(units);
  if (!finished()) {  // reads of rounds that are submitted are work of this stream
    const Event dropped = device_.transfer().record();
    for (std::vector<Event>& of_unit : reads_) of_unit.push_back(dropped);
  }
  reader_ = nullptr;
  rounds_ = submitted_ = 0;
  if (reader == nullptr) return;
  const int rounds = reader->rounds();
  ZERO_CHECK(rounds >= 0, "attach: the reader has {} rounds, expected 0 or more", rounds);
  reader_ = reader;
  rounds_ = rounds;
  used_ = true;
  device_.transfer().wait(device_.compute().record());
  if (rounds == 0) note_reads();
}

void StateReads::note_reads() {
  for (std::size_t unit = 0; unit < reads_.size(); ++unit)
    reads_[unit].push_back(reader_->read(static_cast<int>(unit)));
}

void StateReads::submit_until(int round) {
  if (submitted_ >= round) return;
  timed([&] {
    while (submitted_ < round) reader_->submit(submitted_++);
    if (finished()) note_reads();
  });
}

void StateReads::advance(int done, int all) {
  submit_until(static_cast<int>(div_ceil(std::int64_t{rounds_} * done, all)));
}

void StateReads::wait_before_update(std::size_t unit) {
  if (unit >= reads_.size() || reads_[unit].empty()) return;
  timed([&] {
    for (const Event& read : std::exchange(reads_[unit], {}))
      waits_.wait(device_.compute(), read, WaitSite::read_before_update);
  });
}

void StateReads::synchronize() {
  for (std::vector<Event>& of_unit : reads_) {
    for (const Event& read : std::exchange(of_unit, {})) read.synchronize();
  }
}

void StateReads::drain() {
  if (used_) device_.transfer().synchronize();
}

std::int64_t StateReads::vote() {
  std::int64_t vote = 0;
  if (reader_ != nullptr) timed([&] { vote = reader_->vote(); });
  return vote;
}

void StateReads::counted(std::int64_t sum) {
  if (reader_ != nullptr) timed([&] { reader_->counted(sum); });
}

StateReads::Cost StateReads::take_cost() { return std::exchange(cost_, {}); }

}  // namespace zero
