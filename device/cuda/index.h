// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstdint>
#include <span>
#include <vector>

#include "base/checked_math.h"
#include "device/kernels.h"

/// How kernels partition their elements: pure functions of shapes, for the host and for tests.
namespace zero::cuda {

inline constexpr unsigned kThreads = 256;  // of a block, unless a kernel says otherwise

/// The number of blocks of kThreads threads with one thread per item, at most `limit` (threads then
/// process several items).
inline unsigned blocks_for(std::int64_t items, std::int64_t limit = std::int64_t{1} << 31) {
  return static_cast<unsigned>(
      std::min(div_ceil(items, kThreads), std::min(limit, std::int64_t{0x7fffffff})));
}

/// Calls body(range) for ranges of [0, count) such that, processed in order, results of half the
/// element size may overwrite their sources in place: the results of [n, 2n) lie on elements [n/2,
/// n). The first range has `first` elements: read them all before one is written.
template <class Body>
void for_shrinking_ranges(std::int64_t count, std::int64_t first, const Body& body) {
  for (std::int64_t begin = 0, end = first; begin < count; begin = end, end *= 2) {
    body(ElementRange{begin, std::min(end, count) - begin});
  }
}

/// The excluded elements of `epilogue` within `range` of its destination, in the numbering of
/// `excluded`; adjacent ranges are merged. None without a norm.
inline std::vector<ElementRange> excluded_within(const ReduceEpilogue& epilogue,
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

/// Calls body(piece, excluded) for pieces that cover `range` of the destination of `epilogue`, at
/// multiples of kNormBlock, each with at most `most` >= 32 excluded ranges.
template <class Body>
void for_norm_pieces(const ReduceEpilogue& epilogue, const ElementRange& range, std::size_t most,
                     const Body& body) {
  const std::vector<ElementRange> all = excluded_within(epilogue, range);
  const std::int64_t stop = range.begin + range.count;
  std::span<const ElementRange> left = all;
  for (std::int64_t begin = range.begin, end = stop; begin < stop; begin = end) {
    const auto ended = [&](const ElementRange& each) {
      return each.begin + each.count <= epilogue.excluded_at + begin;
    };
    while (!left.empty() && ended(left.front())) left = left.subspan(1);
    end = stop;
    if (left.size() > most) {
      // Disjoint ranges that do not touch: `most` of them span a block of the norm.
      const std::int64_t at = left[most].begin - epilogue.excluded_at - range.begin;
      end = range.begin + at / kNormBlock * kNormBlock;
    }
    body(ElementRange{begin, end - begin}, left.first(std::min(most, left.size())));
  }
}

}  // namespace zero::cuda
