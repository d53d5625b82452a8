// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <string>

namespace zero {

/// Tells the owner of a store about its uninvited guests, but not more often than every
/// kBetween: strangers must not fill a log. One thread alone uses it.
class StoreReports {
 public:
  using Clock = std::chrono::steady_clock;
  static constexpr std::chrono::seconds kBetween{10};

  explicit StoreReports(std::function<void(const std::string&)> report)
      : report_(std::move(report)) {}

  /// A connection of `peer` was dropped.
  void dropped(const std::string& peer, const std::string& why);
  /// No connection can be taken for now.
  void cannot_accept(const std::string& why);

 private:
  void tell(const std::string& text);

  std::function<void(const std::string&)> report_;
  std::uint64_t untold_ = 0;
  Clock::time_point next_{};
};

}  // namespace zero
