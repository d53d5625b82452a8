// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#include "collectives/local/group.h"

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <numeric>

#include "base/checked_math.h"

namespace zero::local {
namespace {

constexpr std::chrono::milliseconds kLongestSleep{60'000};  // if no limit comes first

}  // namespace

void Job::leave(int rank, std::string_view how) {
  const std::scoped_lock lock(mutex_);
  departures_[static_cast<std::size_t>(rank)] = std::string(how);
  departed_.push_back(rank);
  for (const auto& watcher : watchers_) {
    if (const auto changed = watcher.lock()) changed->notify_all();
  }
}

void Job::watch(std::weak_ptr<std::condition_variable> changed) {
  const std::scoped_lock lock(mutex_);
  std::erase_if(watchers_, [](const auto& watcher) { return watcher.expired(); });
  watchers_.push_back(std::move(changed));
}

void Job::watch(std::weak_ptr<InProcessStore> store) {
  const std::scoped_lock lock(mutex_);
  std::erase_if(stores_, [](const auto& watched) { return watched.expired(); });
  stores_.push_back(std::move(store));
}

void Job::close_stores(std::string_view reason) {
  const std::scoped_lock lock(mutex_);
  for (const auto& watched : stores_) {
    if (const auto store = watched.lock()) store->close(reason);
  }
}

Group::Group(std::shared_ptr<Job> job, std::vector<int> members)
    : job_(std::move(job)),
      members_(std::move(members)),
      contexts_(members_.size(), std::make_shared<const CallContext>()),
      calls_(members_.size()),
      last_(members_.size()),
      came_(members_.size()),
      children_(members_.size()) {}

std::shared_ptr<Group> Group::make(std::shared_ptr<Job> job, std::vector<int> members) {
  std::shared_ptr<Group> group(new Group(std::move(job), std::move(members)));
  group->job_->watch(group->changed_);
  group->job_->watch(group->store_);
  return group;
}

void Group::set_context(int rank, std::shared_ptr<const CallContext> context) {
  const std::scoped_lock lock(job_->mutex());
  contexts_[static_cast<std::size_t>(rank)] = std::move(context);
}

const Call& Group::Round::of(int rank) const {
  return *group_.calls_[static_cast<std::size_t>(rank)];  // fixed from arrival to the end
}

void Group::run_round(int rank, Call call, const std::function<void(Round&)>& body) {
  arrive(rank, std::move(call));
  try {
    Round round(*this, rank);
    body(round);
    pass(rank);
  } catch (const std::exception& error) {
    fail_round(rank, error.what());
    throw;
  }
  const std::scoped_lock lock(job_->mutex());
  const auto self = static_cast<std::size_t>(rank);
  last_[self] = calls_[self]->name;
  calls_[self] = nullptr;
}

void Group::arrive(int rank, Call call) {
  const auto self = static_cast<std::size_t>(rank);
  std::unique_lock lock(job_->mutex());
  if (failure_) throw_failure(rank, call);
  calls_[self] = std::make_shared<const Call>(std::move(call));
  for (int peer = 0; peer < size(); ++peer) {
    const auto& theirs = calls_[static_cast<std::size_t>(peer)];
    if (peer == rank || !came_[static_cast<std::size_t>(peer)] || !theirs) continue;
    const auto message = mismatch(*calls_[self], rank, *theirs, peer);
    if (!message) continue;
    came_[self] = true;  // waiting ranks compare their calls with this one
    failure_ = Failure{.kind = Failure::Kind::mismatch, .reason = *message};
    changed_->notify_all();
    throw Error(*message);
  }
  pass_locked(rank, lock, Wait::limited);
}

void Group::pass(int rank) {
  std::unique_lock lock(job_->mutex());
  pass_locked(rank, lock, Wait::endless);
}

void Group::pass_locked(int rank, std::unique_lock<std::mutex>& lock, Wait wait) {
  const auto self = static_cast<std::size_t>(rank);
  if (failure_) throw_failure(rank, *calls_[self]);
  came_[self] = true;
  if (++arrived_ == size()) {
    arrived_ = 0;
    came_.assign(came_.size(), false);
    ++phase_;
    changed_->notify_all();
    return;
  }
  const std::int64_t phase = phase_;
  int absent = -1;
  const auto over = [&] {
    absent = first_absent();
    return phase_ != phase || failure_ || absent >= 0;
  };
  if (wait == Wait::limited) {
    wait_for_peers(rank, lock, over);
  } else {
    changed_->wait(lock, over);
  }
  if (phase_ != phase) return;
  if (failure_) throw_failure(rank, *calls_[self]);
  throw_departure(rank, absent);
}

// Waits on changed_ until `over()`; absent ranks become a failure at the timeout.
void Group::wait_for_peers(int rank, std::unique_lock<std::mutex>& lock,
                           const std::function<bool()>& over) {
  LongWait wait(*contexts_[static_cast<std::size_t>(rank)]);
  while (!changed_->wait_for(lock, wait.until_due(kLongestSleep), over)) {
    const LongWait::Due due = wait.due();
    if (due == LongWait::Due::nothing) continue;
    const Waiting found = waiting(rank);
    if (due == LongWait::Due::timeout) {
      failure_ = Failure{.kind = Failure::Kind::timeout, .reason = wait.overdue(found)};
      changed_->notify_all();
      throw Error(failure_->reason);
    }
    lock.unlock();
    wait.warn(found);
    lock.lock();
  }
}

Waiting Group::waiting(int rank) const {
  const Call& call = *calls_[static_cast<std::size_t>(rank)];
  Waiting found{.who = fmt::format("[rank {}] {}", rank, call.name), .step = call.step};
  for (int peer = 0; peer < size(); ++peer) {
    if (!came_[static_cast<std::size_t>(peer)]) found.absent.push_back({peer, "a thread"});
  }
  return found;
}

// Ranks in a round read each other's memory, so all leave a failed one together too, except for a
// rank that did not come in time.
void Group::fail_round(int rank, std::string_view what) {
  std::unique_lock lock(job_->mutex());
  const auto& call = calls_[static_cast<std::size_t>(rank)];
  if (!failure_) {
    failure_ = Failure{
        .kind = Failure::Kind::error,
        .reason = fmt::format("rank {} failed in {}: {}", rank, call ? call->name : "", what)};
  }
  ++failed_;
  changed_->notify_all();
  LongWait wait(*contexts_[static_cast<std::size_t>(rank)]);
  while (!changed_->wait_for(lock, wait.until_due(kLongestSleep), [&] {
    return failed_ == size() || failure_->kind == Failure::Kind::timeout;
  })) {
    if (wait.due() == LongWait::Due::timeout) return;
  }
}

int Group::first_absent() const {
  for (const int departed : job_->departed()) {
    const auto at = std::ranges::find(members_, departed);
    if (at == members_.end()) continue;
    const auto rank = at - members_.begin();
    if (!came_[static_cast<std::size_t>(rank)]) return static_cast<int>(rank);
  }
  return -1;
}

void Group::throw_failure(int rank, const Call& call) const {
  const auto self = static_cast<std::size_t>(rank);
  for (int peer = 0; failure_->kind == Failure::Kind::mismatch && peer < size(); ++peer) {
    const auto& theirs = calls_[static_cast<std::size_t>(peer)];
    // A rank that has thrown and calls again has nothing new to compare.
    const bool again = came_[self] && calls_[self].get() != &call;
    if (peer == rank || again || !came_[static_cast<std::size_t>(peer)] || !theirs) continue;
    if (const auto message = mismatch(call, rank, *theirs, peer)) throw Error(*message);
  }
  fail("[rank {}] {}: the group has failed: {}", rank, call.name, failure_->reason);
}

void Group::throw_departure(int rank, int absent) const {
  const auto self = static_cast<std::size_t>(rank);
  const auto gone = static_cast<std::size_t>(absent);
  std::string waiting;
  for (std::size_t peer = 0; peer < calls_.size(); ++peer) {
    if (peer == self || peer == gone || !came_[peer] || !calls_[peer]) continue;
    waiting += fmt::format("{}{}", waiting.empty() ? "; waiting too: rank " : ", ", peer);
  }
  const std::string world_rank =
      members_[gone] == absent ? "" : fmt::format(" (rank {} of the job)", members_[gone]);
  fail("[rank {}] {}: rank {}{} left{}: {}{}", rank, calls_[self]->name, absent, world_rank,
       last_[gone].empty() ? " before its first collective" : " after " + last_[gone],
       *job_->departure(members_[gone]), waiting);
}

std::shared_ptr<Group> Group::split(int rank, int color, int key, std::vector<int>& members) {
  std::shared_ptr<Group> mine;
  Call call;
  call.name = "split";
  call.color = color;
  call.key = key;
  run_round(rank, std::move(call), [&](Round& round) {
    members.clear();
    for (int peer = 0; peer < size(); ++peer) {
      if (round.of(peer).color == color) members.push_back(peer);
    }
    std::ranges::stable_sort(members, {}, [&](int peer) { return round.of(peer).key; });
    const auto leader = static_cast<std::size_t>(members.front());
    if (color >= 0 && members.front() == rank) {
      std::vector<int> of_job;
      for (const int peer : members) of_job.push_back(members_[static_cast<std::size_t>(peer)]);
      auto child = make(job_, std::move(of_job));
      const std::scoped_lock lock(job_->mutex());
      children_[leader] = std::move(child);
    }
    round.barrier();
    if (color < 0) return;
    const std::scoped_lock lock(job_->mutex());
    mine = children_[leader];
  });
  if (color >= 0 && members.front() == rank) {
    const std::scoped_lock lock(job_->mutex());
    children_[static_cast<std::size_t>(rank)] = nullptr;
  }
  return mine;
}

std::shared_ptr<std::byte> Group::allocate_shared(int rank, std::int64_t bytes,
                                                  std::string_view label) {
  constexpr std::int64_t kAlignment = 4096;
  Call call;
  call.name = fmt::format("allocate_shared({})", label);
  call.counts = {bytes};
  std::shared_ptr<std::byte> mine;
  run_round(rank, std::move(call), [&](Round& round) {
    if (rank == 0) {
      const auto size = static_cast<std::size_t>(round_up(bytes, kAlignment));
      auto* const data = static_cast<std::byte*>(std::aligned_alloc(kAlignment, size));
      ZERO_CHECK(data != nullptr, "no memory for {} common bytes", bytes);
      std::memset(data, 0, size);
      const std::scoped_lock lock(job_->mutex());
      shared_ = {data, [](std::byte* memory) { std::free(memory); }};
    }
    round.barrier();
    const std::scoped_lock lock(job_->mutex());
    mine = shared_;
  });
  if (rank == 0) {
    const std::scoped_lock lock(job_->mutex());
    shared_ = nullptr;
  }
  return mine;
}

}  // namespace zero::local
