// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <optional>

#include "base/json_fields.h"
#include "device/device.h"

namespace zero {

/// The step of a process behind which memory is steady: the first allocates what it needs.
inline constexpr std::int64_t kSteadyStep = 2;

/// Memory behind a step: the field "memory" of its line in run.log.
struct MemoryLine {
  BytesByClass now{};
  BytesByClass peak{};          ///< since the line before, of each class alone: they peak apart
  std::int64_t total = 0;       ///< of all classes
  std::int64_t peak_total = 0;  ///< the largest `total` since the line before
  std::int64_t reserved = 0;    ///< Device::reserved_bytes()
  std::optional<std::int64_t> free{};  ///< of the device, where it is known

  /// Counts a charge or release.
  void add(const MemoryEvent& event);
  /// {"parameters": {"now": bytes, "peak": bytes}, ...} of the classes that have or had any,
  /// "total" and "peak" of all, "reserved" and "free".
  nlohmann::ordered_json json() const;
  /// Of a step's line. Throws zero::Error, naming file and line, if it has no such field, or one
  /// whose classes do not sum to its total.
  static MemoryLine of(JsonFields& line);
};

}  // namespace zero
