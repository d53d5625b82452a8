// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#include "launch/simulate/meetings.h"

#include <algorithm>
#include <iterator>

#include "base/error.h"

namespace zero {

double Meetings::latest(const std::vector<int>& ranks, double time) {
  std::vector<int> here;  // both ascend: groups are in rank order
  std::ranges::set_intersection(ranks, simulated_, std::back_inserter(here));
  if (here.size() <= 1) return time;
  std::unique_lock lock(mutex_);
  Meeting& meeting = meetings_[here];
  meeting.time = std::max(meeting.time, time);
  if (++meeting.come == here.size()) {
    meeting.ended = meeting.time;
    meeting.come = 0;
    meeting.time = 0;
    ++meeting.rounds;
    changed_.notify_all();
    return meeting.ended;
  }
  const long round = meeting.rounds;
  changed_.wait(lock, [&] { return failed_ || meeting.rounds > round; });
  ZERO_CHECK(meeting.rounds > round, "another rank that is simulated beside this one has failed");
  return meeting.ended;
}

void Meetings::fail() {
  const std::lock_guard lock(mutex_);
  failed_ = true;
  changed_.notify_all();
}

}  // namespace zero
