// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "model/recompute.h"

namespace zero {

/// The windows through which a decoder's kept inputs pass on their way to host memory and back, and
/// which block's input is where: input k, in the order of the blocks that keep theirs alone, lies
/// in window k % kMost. As many as there are windows stay in them over the head; so none pass if
/// there are no more.
class InputWindows {
 public:
  static constexpr std::int64_t kMost = 2;

  /// `plan`: of a device (RecomputePlan::on).
  InputWindows(const RecomputePlan& plan, std::int64_t layers) {
    numbers_.assign(static_cast<std::size_t>(layers), kNone);
    if (!plan.inputs_on_host) return;
    for (std::int64_t i = 0; i < layers; ++i) {
      if (plan.keeps_input_alone(i)) numbers_[static_cast<std::size_t>(i)] = count_++;
    }
    if (count_ > kMost) return;
    std::ranges::fill(numbers_, kNone);
    count_ = 0;
  }

  /// Inputs that pass through windows.
  std::int64_t count() const { return count_; }
  std::int64_t windows() const { return std::min(count_, kMost); }
  /// Those that go to host memory: all but the last.
  std::int64_t on_host() const { return count_ - windows(); }
  /// Whether block i's input is one of them.
  bool has(std::int64_t i) const { return number(i) != kNone; }
  /// Its number among them.
  std::int64_t number(std::int64_t i) const { return numbers_.at(static_cast<std::size_t>(i)); }
  std::int64_t window(std::int64_t i) const { return number(i) % kMost; }

 private:
  static constexpr std::int64_t kNone = -1;

  std::vector<std::int64_t> numbers_;  // of each block
  std::int64_t count_ = 0;
};

}  // namespace zero
