// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#include "device/arena_layout.h"

#include <algorithm>
#include <iterator>

#include "base/checked_math.h"

namespace zero {

ArenaLayout::ArenaLayout(std::int64_t capacity) {
  const std::int64_t usable = capacity / kAlignment * kAlignment;
  if (usable > 0) gaps_.emplace(0, usable);
}

std::optional<std::int64_t> ArenaLayout::take(std::int64_t bytes) {
  if (bytes > kUnlimited - kAlignment) return std::nullopt;
  const std::int64_t size = round_up(bytes, kAlignment);
  const auto gap =
      std::ranges::find_if(gaps_, [&](const auto& each) { return each.second >= size; });
  if (gap == gaps_.end()) return std::nullopt;
  const auto [begin, room] = *gap;
  gaps_.erase(gap);
  if (room > size) gaps_.emplace(begin + size, room - size);
  high_water_ = std::max(high_water_, begin + size);
  return begin;
}

void ArenaLayout::give_back(std::int64_t begin, std::int64_t bytes) noexcept {
  auto here = gaps_.emplace(begin, round_up(bytes, kAlignment)).first;
  const auto next = std::next(here);
  if (next != gaps_.end() && here->first + here->second == next->first) {
    here->second += next->second;
    gaps_.erase(next);
  }
  if (here == gaps_.begin()) return;
  const auto before = std::prev(here);
  if (before->first + before->second != here->first) return;
  before->second += here->second;
  gaps_.erase(here);
}

}  // namespace zero
