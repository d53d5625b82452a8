// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <condition_variable>
#include <functional>
#include <map>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "collectives/store.h"

namespace zero {

/// A view of another store that puts a prefix before every key: the store of a split.
class PrefixStore final : public Store {
 public:
  /// `whole` must outlive this.
  PrefixStore(Store& whole, std::string_view prefix)
      : whole_(whole), prefix_(std::string(prefix) + "/") {}

  void set(std::string_view key, std::string_view value) override {
    whole_.set(prefix_ + std::string(key), value);
  }
  std::string get(std::string_view key, std::chrono::milliseconds timeout) override {
    return whole_.get(prefix_ + std::string(key), timeout);
  }
  std::vector<std::string> get_all(const std::vector<std::string>& keys,
                                   std::chrono::milliseconds timeout) override {
    return whole_.get_all(prefixed(keys), timeout);
  }
  void wait(const std::vector<std::string>& keys, std::chrono::milliseconds timeout) override {
    whole_.wait(prefixed(keys), timeout);
  }
  std::optional<std::string> lost() override { return whole_.lost(); }

 private:
  std::vector<std::string> prefixed(std::vector<std::string> keys) const {
    for (std::string& key : keys) key.insert(0, prefix_);
    return keys;
  }

  Store& whole_;
  std::string prefix_;
};

/// A Store of ranks that are threads of one process.
class InProcessStore final : public Store {
 public:
  void set(std::string_view key, std::string_view value) override;
  std::string get(std::string_view key, std::chrono::milliseconds timeout) override;
  void wait(const std::vector<std::string>& keys, std::chrono::milliseconds timeout) override;

  std::optional<std::string> lost() override;

  /// Declares that no rank will set further keys: waits for a missing key throw `reason`.
  void close(std::string_view reason);

 private:
  std::vector<std::string> missing(const std::vector<std::string>& keys) const;

  mutable std::mutex mutex_;
  std::condition_variable changed_;
  std::map<std::string, std::string, std::less<>> values_;
  std::optional<std::string> closed_;
};

}  // namespace zero
