// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "device/memory_monitor.h"

namespace zero {

/// The unit whose buffer has `label`: of the names in `units` the longest that is the label, or is
/// followed there by a dot ("h.0" of "h.0.master"); empty if it is no unit's.
std::string_view unit_of(std::string_view label, const std::vector<std::string>& units);

/// "optimizer h.0.moment (unit h.0)"; label and unit may be empty.
std::string labelled(MemoryClass memory_class, std::string_view label, std::string_view unit);

/// Compares a device's bytes behind each step with those of the run's steady state, for
/// run.memory_growth. Used by the device's thread.
class GrowthWatch {
 public:
  /// The step of this process behind which memory is steady: the first allocates what it needs.
  static constexpr std::int64_t kSteady = 2;

  /// `most`: bytes above the steady state that are no growth yet. `device` must outlive the watch.
  GrowthWatch(std::int64_t most, std::vector<std::string> units, Device& device)
      : most_(most), units_(std::move(units)), device_(device) {}

  /// Call behind each step with the bytes of the device's ledger. Returns what has grown, for
  /// people: "memory has grown by 80.00 KiB since step 2, to 1.20 GiB, ...: most of it optimizer
  /// h.0.moment (unit h.0), +79.00 KiB"; nothing if nothing has. What was told of counts as steady
  /// from then on.
  std::optional<std::string> after_step(std::int64_t step, std::int64_t total);

 private:
  MemoryMoment moment(std::int64_t step) const;

  std::int64_t most_;
  std::vector<std::string> units_;
  Device& device_;
  std::int64_t steps_ = 0;  // of this process
  std::optional<MemoryMoment> steady_;
};

}  // namespace zero
