// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace zero {

/// Small keys and values that all ranks of a group see: bootstrap, agreement checks, post-mortems.
/// Thread-safe.
class Store {
 public:
  virtual ~Store() = default;
  /// Publishes `value` under `key`; a later set of the same key replaces it.
  virtual void set(std::string_view key, std::string_view value) = 0;
  /// Waits until some rank has set the key, and returns its value. Throws zero::Error naming the
  /// key if `timeout` passes first.
  virtual std::string get(std::string_view key, std::chrono::milliseconds timeout) = 0;
  /// The value if some rank has set it; does not wait.
  std::optional<std::string> find(std::string_view key);
  /// Waits until all keys are set, and returns their values in the order of `keys`. Throws like
  /// wait().
  virtual std::vector<std::string> get_all(const std::vector<std::string>& keys,
                                           std::chrono::milliseconds timeout);
  /// Returns once every key is set; throws zero::Error naming the missing keys if `timeout` passes
  /// first.
  virtual void wait(const std::vector<std::string>& keys, std::chrono::milliseconds timeout) = 0;
  /// The rank that ended early, and how; empty while all ranks run, and always if the launcher ends
  /// all ranks when one ends (mpirun). Once a rank is lost, waits for missing keys throw at once.
  virtual std::optional<std::string> lost() = 0;
};

/// A rank of a group that shares a store.
struct StoreRank {
  Store& store;
  int rank = 0;
  int size = 1;
  std::chrono::milliseconds timeout{60'000};
};

/// Gives every rank the strings of all ranks, in rank order. Each `key` may be used once. Blocks;
/// throws like Store::wait, naming key/RANK of the ranks that did not come.
std::vector<std::string> all_gather_texts(const StoreRank& self, std::string_view key,
                                          std::string_view mine);

/// This rank's part of a split.
struct StoreSplit {
  std::vector<int> members{};  ///< ranks of the group that was split, in their new order
  int rank = -1;               ///< in the new group; -1: in none
};
/// The ranks that give the same color, ordered by (key, rank), as in Communicator::split.
/// Collective; each `name` may be used once.
StoreSplit split(const StoreRank& self, std::string_view name, int color, int key);

}  // namespace zero
