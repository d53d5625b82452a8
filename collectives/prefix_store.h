// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "collectives/store.h"

namespace zero {

/// A part of another store: all its keys begin with a prefix there. What a group of some of the
/// ranks uses.
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
  void wait(const std::vector<std::string>& keys, std::chrono::milliseconds timeout) override {
    std::vector<std::string> there;
    for (const std::string& key : keys) there.push_back(prefix_ + key);
    whole_.wait(there, timeout);
  }
  std::optional<std::string> lost() override { return whole_.lost(); }

 private:
  Store& whole_;
  std::string prefix_;
};

}  // namespace zero
