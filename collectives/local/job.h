// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <condition_variable>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "collectives/in_process_store.h"

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

}  // namespace zero::local
