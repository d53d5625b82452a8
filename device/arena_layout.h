// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <limits>
#include <map>
#include <optional>

namespace zero {

/// Where buffers lie in one block of memory: each in the first gap that holds it, at multiples of
/// kAlignment. Arithmetic alone, so that a plan says how large a block must be for what a run takes
/// from it and gives back, alignment and gaps included, and the run's block then is that large.
class ArenaLayout {
 public:
  static constexpr std::int64_t kAlignment = 256;
  static constexpr std::int64_t kUnlimited = std::numeric_limits<std::int64_t>::max();

  /// For a block of `capacity` bytes, of which a rest behind the last multiple of kAlignment stays
  /// unused.
  explicit ArenaLayout(std::int64_t capacity = kUnlimited);

  /// Where `bytes` > 0 begin; nothing if no gap holds them.
  std::optional<std::int64_t> take(std::int64_t bytes);
  /// Frees the range that take(bytes) gave as `begin`.
  void give_back(std::int64_t begin, std::int64_t bytes) noexcept;

  /// Behind the last byte that was ever taken, aligned: the block that this all needs.
  std::int64_t high_water() const { return high_water_; }
  /// Gaps, the one behind everything included: 1 or none once all is given back.
  std::int64_t gaps() const { return static_cast<std::int64_t>(gaps_.size()); }

 private:
  std::map<std::int64_t, std::int64_t> gaps_;  // bytes by begin
  std::int64_t high_water_ = 0;
};

}  // namespace zero
