// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#include "device/cuda/index.h"

namespace zero::cuda {

std::vector<ElementRange> uncounted_within(const ReduceEpilogue& epilogue,
                                           const ElementRange& range) {
  std::vector<ElementRange> within;
  if (!epilogue.norm || !epilogue.excluded) return within;
  const std::int64_t low = epilogue.excluded_at + range.begin;
  const std::int64_t high = low + range.count;
  for (const ElementRange& each : *epilogue.excluded) {
    const std::int64_t begin = std::max(low, each.begin);
    const std::int64_t end = std::min(high, each.begin + each.count);
    if (begin >= end) continue;
    if (!within.empty() && within.back().begin + within.back().count == begin) {
      within.back().count += end - begin;
    } else {
      within.push_back({begin, end - begin});
    }
  }
  return within;
}

}  // namespace zero::cuda
