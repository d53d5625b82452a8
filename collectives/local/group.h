// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <condition_variable>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "collectives/call.h"
#include "collectives/long_wait.h"
#include "collectives/stores.h"

namespace zero::local {

/// State shared by the groups of one local::run: one lock, and the ranks that have left. A rank
/// leaves when its body ends; ranks that wait for it in any group are then released.
class Job {
 public:
  explicit Job(int ranks) : departures_(static_cast<std::size_t>(ranks)) {}

  /// Marks `rank` as gone and wakes all waiting ranks. `how` is "its body returned" or the like.
  void leave(int rank, std::string_view how);
  /// Wakes the waiters of `changed`, as long as it lives, whenever a rank leaves.
  void watch(std::weak_ptr<std::condition_variable> changed);
  /// Has waits in `store`, as long as it lives, throw once a rank throws.
  void watch(std::weak_ptr<InProcessStore> store);
  void close_stores(std::string_view reason);

  std::mutex& mutex() { return mutex_; }
  /// With mutex() held: how `rank` left; empty before that.
  const std::optional<std::string>& departure(int rank) const {
    return departures_[static_cast<std::size_t>(rank)];
  }
  /// With mutex() held: the ranks that left, in order.
  const std::vector<int>& departed() const { return departed_; }

 private:
  std::mutex mutex_;
  std::vector<std::optional<std::string>> departures_;
  std::vector<int> departed_;
  std::vector<std::weak_ptr<std::condition_variable>> watchers_;
  std::vector<std::weak_ptr<InProcessStore>> stores_;
};

/// Ranks as threads of one process. In a round every rank publishes its call; once all have come,
/// each may read its peers' memory until the round ends, for all at once. Calls that disagree, a
/// rank that left, a rank that failed and one that does not come in time end the round with an
/// error on every rank, and end the group. All waiting is on a condition variable, because ranks
/// outnumber cores.
class Group : public std::enable_shared_from_this<Group> {
 public:
  /// One rank's part in a round; valid within the function given to run_round().
  class Round {
   public:
    int rank() const { return rank_; }
    int size() const { return group_.size(); }
    const Call& of(int rank) const;
    /// No rank passes before all have come.
    void barrier() { group_.pass(rank_); }

   private:
    friend class Group;
    Round(Group& group, int rank) : group_(group), rank_(rank) {}
    Group& group_;
    int rank_;
  };

  /// `members` are ranks of the job, in group order.
  static std::shared_ptr<Group> make(std::shared_ptr<Job> job, std::vector<int> members);

  int size() const { return static_cast<int>(members_.size()); }
  /// Rank `rank` waits within the limits of `context`.
  void set_context(int rank, std::shared_ptr<const CallContext> context);
  InProcessStore& store() { return *store_; }

  /// Publishes `call`, waits for all ranks, runs `body`, waits for all ranks again.
  void run_round(int rank, Call call, const std::function<void(Round&)>& body);
  /// The group of the ranks that give the same color; null for a negative color. Sets
  /// `members`: those ranks, in their new order.
  std::shared_ptr<Group> split(int rank, int color, int key, std::vector<int>& members);
  /// `bytes` of zeroed memory, the same memory on every rank; errors name `label`.
  std::shared_ptr<std::byte> allocate_shared(int rank, std::int64_t bytes, std::string_view label);

 private:
  struct Failure {
    enum class Kind {
      mismatch,  // each rank makes its own message, from the calls
      error,     // of one rank, inside a round
      timeout,   // a rank did not come
    };
    Kind kind = Kind::error;
    std::string reason;
  };

  Group(std::shared_ptr<Job> job, std::vector<int> members);
  void arrive(int rank, Call call);
  void pass(int rank);
  /// Whether WaitLimits apply. Once all have come to a round, no rank leaves before the others
  /// are through: they may be copying its memory.
  enum class Wait : std::uint8_t { limited, endless };
  void pass_locked(int rank, std::unique_lock<std::mutex>& lock, Wait wait);
  void wait_for_peers(int rank, std::unique_lock<std::mutex>& lock,
                      const std::function<bool()>& over);
  Waiting waiting(int rank) const;
  void fail_round(int rank, std::string_view what);
  int first_absent() const;  // a rank that left without coming to this phase, or -1
  [[noreturn]] void throw_failure(int rank, const Call& call) const;
  [[noreturn]] void throw_departure(int rank, int absent) const;

  std::shared_ptr<Job> job_;
  std::vector<int> members_;
  std::shared_ptr<InProcessStore> store_ = std::make_shared<InProcessStore>();
  std::shared_ptr<std::condition_variable> changed_ = std::make_shared<std::condition_variable>();

  // Under the job's mutex.
  std::vector<std::shared_ptr<const CallContext>> contexts_;  // of each rank
  std::vector<std::shared_ptr<const Call>> calls_;  // of this round; null where not yet come
  std::vector<std::string> last_;                   // each rank's last complete round
  std::vector<bool> came_;                          // to this phase
  int arrived_ = 0;                                 // in this phase
  std::int64_t phase_ = 0;
  std::optional<Failure> failure_;
  int failed_ = 0;  // ranks that have given up a round that all had come to
  std::vector<std::shared_ptr<Group>> children_;  // split: made by the first rank of a color
  std::shared_ptr<std::byte> shared_;             // allocate_shared: made by rank 0
};

}  // namespace zero::local
