// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#include "collectives/nccl/session.h"

#include <algorithm>
#include <exception>
#include <ranges>

#include "base/error.h"
#include "collectives/nccl/check.h"

namespace zero::nccl {
namespace {

using std::chrono::milliseconds;

constexpr milliseconds kBetweenLooks{500};
constexpr milliseconds kFarewell{5000};
constexpr milliseconds kExplained{1000};  // in which the store may say why NCCL lost a rank
constexpr milliseconds kBetweenQuestions{20};
constexpr std::string_view kFailed = "nccl/failed";

/// The pause between two polls for a call's completion; most calls complete within a few polls.
void pause(int looks) {
  constexpr int kImpatient = 200;
  if (looks < kImpatient) return std::this_thread::yield();
  std::this_thread::sleep_for(std::chrono::microseconds(50));
}

}  // namespace

Session::Session(Store& store, int rank, std::shared_ptr<const CallContext> context)
    : store_(store), rank_(rank), context_(std::move(context)), watcher_([this] { watch(); }) {}

Session::~Session() {
  {
    const std::scoped_lock lock(mutex_);
    ended_ = true;
  }
  ends_.notify_all();
  watcher_.join();
}

void Session::attend(ncclComm_t comm, Attendance::GroupProgress group) {
  const std::scoped_lock lock(mutex_);
  groups_.emplace_back(comm, std::move(group));
}

std::vector<Attendance::GroupProgress> Session::groups() const {
  std::vector<Attendance::GroupProgress> all;
  const std::scoped_lock lock(mutex_);
  for (const auto& [comm, group] : groups_) all.push_back(group);
  return all;
}

void Session::check_locked(const std::string& who) const {
  if (failure_) zero::fail("{}: the group has failed: {}", who, *failure_);
}

void Session::check(const std::string& who) const {
  const std::scoped_lock lock(telling_);
  check_locked(who);
}

ncclResult_t Session::state_of(ncclComm_t comm) const {
  ncclResult_t state = ncclSuccess;
  const ncclResult_t asked = ncclCommGetAsyncError(comm, &state);
  return asked == ncclSuccess ? state : asked;
}

void Session::run(const std::string& who, ncclComm_t* comm, const std::function<void()>& calls,
                  Clock::time_point deadline) {
  try {
    const std::scoped_lock lock(mutex_);
    check_locked(who);
    last_ = who;
    calls();
    if (std::ranges::find(comms_, *comm) == comms_.end()) comms_.push_back(*comm);
  } catch (const Error& error) {
    fail(error.what());
    throw;
  }
  await_connected(who, *comm, deadline);
}

void Session::run_collective(const std::string& who, ncclComm_t comm,
                             const std::function<void()>& calls) {
  run(who, &comm, [&] {
    count_locked(who, comm);
    calls();
  });
}

void Session::count_locked(const std::string& who, ncclComm_t comm) {
  for (auto& [watched, group] : groups_) {
    if (watched != comm) continue;
    ++group.calls;
    group.who = who;
    group.step = context_->step();
  }
}

void Session::await_connected(const std::string& who, ncclComm_t comm, Clock::time_point deadline) {
  std::string reason;
  bool lost = false;
  for (int looks = 0; reason.empty(); ++looks) {
    {
      const std::scoped_lock lock(mutex_);
      check_locked(who);
      const ncclResult_t state = state_of(comm);
      if (state == ncclSuccess) return;
      if (state != ncclInProgress) {
        reason = fmt::format("{}: NCCL: {}", who, described(state, comm));
        lost = state == ncclRemoteError;
      } else if (Clock::now() >= deadline) {
        reason = fmt::format(
            "{}: the ranks did not meet in time; check that every rank reached this point, and "
            "that NCCL finds a network between them (NCCL_DEBUG=INFO tells more)",
            who);
      }
    }
    pause(looks);
  }
  if (lost) reason = explained(reason);
  fail(reason);
  throw Error(reason);
}

void Session::leave(ncclComm_t comm) noexcept {
  std::unique_lock lock(mutex_);
  std::erase_if(groups_, [&](const auto& each) { return each.first == comm; });
  if (std::erase(comms_, comm) == 0) return;  // aborted
  const auto deadline = Clock::now() + kFarewell;
  ncclResult_t state = ncclCommFinalize(comm);
  for (int looks = 0; state == ncclInProgress && Clock::now() < deadline; ++looks) {
    lock.unlock();
    pause(looks);
    lock.lock();
    state = state_of(comm);
  }
  if (state == ncclSuccess) {
    ncclCommDestroy(comm);
  } else {
    ncclCommAbort(comm);
  }
}

void Session::use(ncclComm_t comm, const std::function<void(ncclComm_t)>& call) noexcept {
  const std::scoped_lock lock(mutex_);
  if (std::ranges::find(comms_, comm) != comms_.end()) call(comm);
}

void Session::fail(const std::string& reason) noexcept {
  abort_all(reason);
  try {
    const std::scoped_lock lock(mutex_);
    if (*failure_ == reason) store_.set(kFailed, reason);
  } catch (const std::exception&) {
    // The store has ended with this rank, from which the others learn that it is lost.
  }
}

void Session::abort_all(const std::string& reason) noexcept {
  const std::scoped_lock lock(mutex_);
  if (failure_) return;
  {
    const std::scoped_lock telling(telling_);
    failure_ = reason;
  }
  for (ncclComm_t comm : comms_ | std::views::reverse) ncclCommAbort(comm);
  comms_.clear();
}

std::optional<std::string> Session::trouble_elsewhere() {
  try {
    if (auto lost = store_.lost()) return lost;
    return store_.find(kFailed);
  } catch (const std::exception& error) {
    return error.what();
  }
}

std::string Session::explained(const std::string& reason) {
  for (const auto deadline = Clock::now() + kExplained; Clock::now() < deadline;) {
    if (const auto other = trouble_elsewhere()) return fmt::format("{} (here: {})", *other, reason);
    std::this_thread::sleep_for(kBetweenQuestions);
  }
  return reason;
}

std::optional<std::string> Session::trouble_here() const {
  const std::scoped_lock lock(mutex_);
  for (ncclComm_t comm : comms_) {
    const ncclResult_t state = state_of(comm);
    if (state == ncclSuccess || state == ncclInProgress) continue;
    return fmt::format("[rank {}] {}: NCCL: {}", rank_, last_, described(state, comm));
  }
  return std::nullopt;
}

void Session::watch() {
  Attendance attendance(store_, context_);
  std::unique_lock lock(mutex_);
  while (!ends_.wait_for(lock, attendance.until_due(kBetweenLooks), [this] { return ended_; })) {
    const std::string last = last_;
    lock.unlock();
    if (const auto here = trouble_here()) return fail(explained(*here));
    if (const auto elsewhere = trouble_elsewhere()) {
      return abort_all(fmt::format("{} (the last call here: {})", *elsewhere, last));
    }
    try {
      attendance.look(groups());
    } catch (const std::exception& error) {
      return fail(error.what());
    }
    lock.lock();
  }
}

}  // namespace zero::nccl
