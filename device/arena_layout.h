// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <limits>
#include <map>
#include <optional>

namespace zero {

/// Places buffers in one block of memory: first fit, at multiples of kAlignment. Pure arithmetic: a
/// plan replays a run's allocations and thereby sizes the run's block, with alignment and gaps.
class ArenaLayout {
 public:
  static constexpr std::int64_t kAlignment = 256;
  static constexpr std::int64_t kUnlimited = std::numeric_limits<std::int64_t>::max();

  /// A block of `capacity` bytes, rounded down to a multiple of kAlignment.
  explicit ArenaLayout(std::int64_t capacity = kUnlimited);

  /// The offset of a range of `bytes` > 0; nothing if no gap is large enough.
  std::optional<std::int64_t> take(std::int64_t bytes);
  /// Frees the range that take(bytes) returned as `begin`.
  void give_back(std::int64_t begin, std::int64_t bytes) noexcept;

  /// High-water mark: the aligned end of the highest range ever taken, hence the block size
  /// required.
  std::int64_t high_water() const { return high_water_; }
  /// Number of gaps, including the one after the last range: 0 or 1 if no range is taken.
  std::int64_t gaps() const { return static_cast<std::int64_t>(gaps_.size()); }

 private:
  std::map<std::int64_t, std::int64_t> gaps_;  // bytes by begin
  std::int64_t high_water_ = 0;
};

}  // namespace zero
