// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#include "partition/flat_layout.h"

#include <algorithm>
#include <limits>

#include "base/checked_math.h"

namespace zero {

namespace {

// Headroom for rounding up to the alignment and to a multiple of any world (int ranks).
constexpr std::int64_t kMost = std::numeric_limits<std::int64_t>::max() / 2;

}  // namespace

FlatRange FlatRange::within(const FlatRange& other) const {
  const std::int64_t first = std::clamp(other.begin, begin, end());
  return {first, std::clamp(other.end(), first, end()) - first};
}

FlatLayout::FlatLayout(const std::vector<ParameterSpec>& parameters, int world, std::int64_t small,
                       std::int64_t alignment)
    : world_(world) {
  ZERO_CHECK(world >= 1, "flat layout: a world of {} ranks; expected 1 or more", world);
  ZERO_CHECK(small >= 0,
             "flat layout: small parameters of at most {} elements; expected 0 (none) or more",
             small);
  ZERO_CHECK(alignment > 0 && alignment % kAlignment == 0,
             "flat layout: an alignment of {} elements; expected a multiple of {}", alignment,
             kAlignment);

  placements_.reserve(parameters.size());
  for (const ParameterSpec& parameter : parameters) {
    placements_.push_back(
        {.index = static_cast<int>(placements_.size()), .begin = 0, .count = parameter.count()});
  }

  std::int64_t end = 0;
  const auto place = [&](Placement& placement) {
    const std::string& name = parameters[static_cast<std::size_t>(placement.index)].name;
    ZERO_CHECK(placement.count <= kMost - alignment - end,
               "flat layout: parameter \"{}\" of {} elements after {} others is more than {} "
               "elements in all; split the unit",
               name, placement.count, end, kMost);
    placement.begin = end;
    logical_ += placement.count;
    end = round_up(end + placement.count, alignment);
  };
  for (Placement& placement : placements_) {
    if (placement.count > small) place(placement);
  }
  tail_begin_ = end;
  for (Placement& placement : placements_) {
    if (placement.count <= small) place(placement);
  }
  tail_end_ = end;
  shard_ = round_up(div_ceil(end, world), alignment);
}

FlatRange FlatLayout::owned(int rank, const FlatRange& range) const {
  ZERO_CHECK(rank >= 0 && rank < world_, "flat layout: rank {} in a world of {}; expected 0 to {}",
             rank, world_, world_ - 1);
  ZERO_CHECK(range.begin >= 0 && range.count >= 0 && range.begin <= padded() - range.count,
             "flat layout: [{}, {} + {}) is outside its {} elements", range.begin, range.begin,
             range.count, padded());
  return range.within({shard_ * rank, shard_});
}

}  // namespace zero
