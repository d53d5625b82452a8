// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#include "collectives/nccl/session.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <ranges>

#include "base/error.h"
#include "collectives/nccl/check.h"

namespace zero::nccl {
namespace {

using std::chrono::milliseconds;

std::string key_of(const Attendance::GroupProgress& group, std::size_t rank) {
  return fmt::format("{}/calls/{}", group.name, rank);
}

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

// -1: the rank has never been quiet.
std::int64_t Attendance::calls_of(const GroupProgress& group, std::size_t rank) const {
  const std::optional<std::string> text = store_.find(key_of(group, rank));
  if (!text) return -1;
  std::int64_t calls = 0;
  const char* const end = text->data() + text->size();
  const auto [last, error] = std::from_chars(text->data(), end, calls);
  ZERO_CHECK(error == std::errc{} && last == end,
             "{}: rank {} tells \"{}\" as the number of its calls, expected a whole number",
             group.who, rank, *text);
  return calls;
}

void Attendance::look(const std::vector<GroupProgress>& groups) {
  std::erase_if(quiet_, [&](const auto& known) {  // groups that have ended
    return std::ranges::none_of(
        groups, [&](const GroupProgress& group) { return group.name == known.first; });
  });
  for (const GroupProgress& group : groups) {
    const auto known = quiet_.find(group.name);
    if (known != quiet_.end() && known->second.calls == group.calls) {
      look(group, known->second);
    } else {
      quiet_.erase(group.name);
      quiet_[group.name].calls = group.calls;
    }
  }
}

// A rank publishes its count at the second look. The wait begins at the third, when ranks that
// arrived at the same time have published theirs.
void Attendance::look(const GroupProgress& group, Quiet& quiet) {
  ++quiet.looks;
  if (quiet.looks == 1) {
    store_.set(key_of(group, static_cast<std::size_t>(group.rank)), std::to_string(group.calls));
    return;
  }
  if (!quiet.wait) quiet.wait.emplace(*context_);
  const LongWait::Due due = quiet.wait->due();
  if (due == LongWait::Due::nothing) return;
  const Waiting waiting{.who = group.who, .step = group.step, .absent = absent(group)};
  const bool over = due == LongWait::Due::timeout;
  if (!waiting.absent.empty() && over) throw Error(quiet.wait->overdue(waiting));
  if (!waiting.absent.empty()) quiet.wait->warn(waiting);
  if (over) quiet.wait.emplace(*context_);  // all have come; no rank makes a call
}

std::vector<AbsentRank> Attendance::absent(const GroupProgress& group) const {
  std::vector<AbsentRank> ranks;
  if (group.calls == 0) return ranks;
  for (std::size_t rank = 0; rank < group.hosts.size(); ++rank) {
    const std::int64_t calls = calls_of(group, rank);
    if (calls >= group.calls || static_cast<int>(rank) == group.rank) continue;
    ranks.push_back(
        {static_cast<int>(rank), fmt::format("on host {}: unknown", group.hosts[rank])});
  }
  return ranks;
}

milliseconds Attendance::until_due(milliseconds most) const {
  for (const auto& [name, quiet] : quiet_) {
    if (quiet.wait) most = quiet.wait->until_due(most);
  }
  return most;
}

Session::Session(Store& store, int rank, std::shared_ptr<const CallContext> context,
                 milliseconds ending)
    : store_(store),
      rank_(rank),
      ending_(ending),
      context_(std::move(context)),
      aborter_([this] { abort_once_failed(); }),
      watcher_([this] { watch(); }) {}

// The watch goes last: it counts while communicators are aborted.
Session::~Session() {
  const auto end = [this](bool& flag, std::thread& thread) {
    {
      const std::scoped_lock telling(telling_);
      flag = true;
    }
    changes_.notify_all();
    thread.join();
  };
  end(ending_in_order_, aborter_);
  end(ended_, watcher_);
}

void Session::attend(ncclComm_t comm, Attendance::GroupProgress group) {
  const std::scoped_lock telling(telling_);
  groups_.emplace_back(comm, std::move(group));
}

void Session::check(const std::string& who) const {
  const std::scoped_lock telling(telling_);
  refuse_failed(who);
}

void Session::refuse_failed(const std::string& who) const {
  if (failure_) zero::fail("{}: the group has failed: {}", who, *failure_);
}

void Session::begin_call(const std::string& who) {
  const std::scoped_lock telling(telling_);
  refuse_failed(who);
  last_ = who;
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
    begin_call(who);
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
    count(who, comm);
    calls();
  });
}

void Session::count(const std::string& who, ncclComm_t comm) {
  const std::scoped_lock telling(telling_);
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
      check(who);
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
  {
    const std::scoped_lock telling(telling_);
    std::erase_if(groups_, [&](const auto& each) { return each.first == comm; });
  }
  if (has_aborted(lock)) return;
  std::erase(comms_, comm);
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
  std::unique_lock lock(mutex_);
  if (has_aborted(lock)) return;
  if (std::ranges::find(comms_, comm) != comms_.end()) call(comm);
}

void Session::fail(const std::string& reason) noexcept {
  begin_end(reason, Tell::others);
  std::unique_lock lock(mutex_);
  has_aborted(lock);
}

void Session::begin_end(const std::string& reason, Tell tell) noexcept {
  {
    const std::scoped_lock telling(telling_);
    if (failure_) return;
    failure_ = reason;
    failed_at_ = Clock::now();
    tell_ = tell;
  }
  changes_.notify_all();
}

bool Session::has_aborted(std::unique_lock<std::mutex>& lock) {
  {
    const std::scoped_lock telling(telling_);
    if (!failure_) return false;
  }
  aborts_.wait(lock, [this] { return aborted_; });
  return true;
}

void Session::abort_once_failed() {
  std::unique_lock telling(telling_);
  changes_.wait(telling, [this] { return failure_ || ending_in_order_; });
  if (!failure_) return;
  const std::string reason = *failure_;
  const Tell tell = tell_;
  telling.unlock();
  try {
    if (tell == Tell::others) store_.set(kFailed, reason);
  } catch (const std::exception&) {
    // The store has ended with this rank, from which the others learn that it is lost.
  }
  {
    const std::scoped_lock lock(mutex_);
    for (ncclComm_t comm : comms_ | std::views::reverse) ncclCommAbort(comm);
    comms_.clear();
    aborted_ = true;
  }
  aborts_.notify_all();
}

void Session::await_end() {
  std::unique_lock telling(telling_);
  if (changes_.wait_until(telling, failed_at_ + ending_, [this] { return ended_; })) return;
  std::fputs(fmt::format("[rank {}] NCCL: the group has failed and did not end within {} s; this "
                         "process ends: {}\n",
                         rank_, std::chrono::duration<double>(ending_).count(), *failure_)
                 .c_str(),
             stderr);
  std::fflush(stderr);
  std::_Exit(1);
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
  const std::unique_lock lock(mutex_, std::try_to_lock);
  if (!lock) return std::nullopt;
  for (ncclComm_t comm : comms_) {
    const ncclResult_t state = state_of(comm);
    if (state == ncclSuccess || state == ncclInProgress) continue;
    const std::scoped_lock telling(telling_);
    return fmt::format("[rank {}] {}: NCCL: {}", rank_, last_, described(state, comm));
  }
  return std::nullopt;
}

void Session::look(Attendance& attendance) {
  std::vector<Attendance::GroupProgress> groups;
  std::string last;
  {
    const std::scoped_lock telling(telling_);
    last = last_;
    for (const auto& [comm, group] : groups_) groups.push_back(group);
  }
  if (const auto here = trouble_here()) return begin_end(explained(*here), Tell::others);
  if (const auto elsewhere = trouble_elsewhere()) {
    return begin_end(fmt::format("{} (the last call here: {})", *elsewhere, last), Tell::nobody);
  }
  try {
    attendance.look(groups);
  } catch (const std::exception& error) {
    begin_end(error.what(), Tell::others);
  }
}

void Session::watch() {
  Attendance attendance(store_, context_);
  const auto changed = [this] { return ended_ || failure_; };
  for (std::unique_lock telling(telling_);
       !changes_.wait_for(telling, attendance.until_due(kBetweenLooks), changed); telling.lock()) {
    telling.unlock();
    look(attendance);
  }
  await_end();
}

}  // namespace zero::nccl
