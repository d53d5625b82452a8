// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#include "engine/uncounted.h"

#include <algorithm>

#include "base/checked_math.h"

namespace zero {
namespace {

/// Adds [begin, end) to ascending ranges, to the last one where they touch.
void append(std::vector<ElementRange>& ranges, std::int64_t begin, std::int64_t end) {
  if (begin >= end) return;
  if (!ranges.empty() && ranges.back().begin + ranges.back().count == begin) {
    ranges.back().count += end - begin;
  } else {
    ranges.push_back({begin, end - begin});
  }
}

}  // namespace

std::shared_ptr<const std::vector<ElementRange>> uncounted_elements(const Unit& unit,
                                                                    const Segment& segment,
                                                                    MeshPlace place) {
  const std::int64_t low = segment.layout.shard() * place.shard;
  const std::int64_t high = low + segment.layout.shard();
  std::vector<Placement> placements = segment.layout.placements();
  std::ranges::sort(placements, {}, &Placement::begin);
  auto ranges = std::make_shared<std::vector<ElementRange>>();
  for (const Placement& placement : placements) {
    const auto parameter =
        static_cast<std::size_t>(segment.parameters[static_cast<std::size_t>(placement.index)]);
    const ParameterSpec& spec = unit.specs[parameter];
    const auto leave_out = [&](std::int64_t begin, std::int64_t end) {
      append(*ranges, std::clamp(begin, low, high) - low, std::clamp(end, low, high) - low);
    };
    if (!spec.slice) {  // padding behind it is zero: one range for neighbours
      const std::int64_t end = round_up(placement.begin + placement.count, kAlignment);
      if (place.tensor > 0) leave_out(placement.begin, end);
      continue;
    }
    spec.for_each_run(0, placement.count, [&](const TensorSlice::Run& run) {
      const std::int64_t begin = placement.begin + run.local;
      if (run.copy > 0) leave_out(begin, begin + run.count);
    });
  }
  return ranges->empty() ? nullptr : ranges;
}

}  // namespace zero
