// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#include "partition/shard_map.h"

#include <algorithm>

#include "base/error.h"

namespace zero {

namespace {

// The part of `placement` inside rank's shard of `layout`; count 0 where there is none.
Piece piece_of(const FlatLayout& layout, const Placement& placement, int rank) {
  const std::int64_t shard_begin = layout.shard() * rank;
  const std::int64_t first = std::max(placement.begin, shard_begin);
  const std::int64_t last =
      std::min(placement.begin + placement.count, shard_begin + layout.shard());
  return {.parameter = placement.index,
          .rank = rank,
          .logical_begin = first - placement.begin,
          .shard_begin = first - shard_begin,
          .count = std::max<std::int64_t>(0, last - first)};
}

void check_rank(const FlatLayout& layout, int rank) {
  ZERO_CHECK(rank >= 0 && rank < layout.world(),
             "shard map: rank {} in a world of {}; expected 0 to {}", rank, layout.world(),
             layout.world() - 1);
}

}  // namespace

ShardMap::ShardMap(const FlatLayout& layout) : layout_(layout) {}

std::vector<Piece> ShardMap::pieces_of_rank(int rank) const {
  check_rank(layout_, rank);
  std::vector<Piece> pieces;
  for (const Placement& placement : layout_.placements()) {
    const Piece piece = piece_of(layout_, placement, rank);
    if (piece.count > 0) pieces.push_back(piece);
  }
  std::ranges::sort(pieces, {}, &Piece::shard_begin);
  return pieces;
}

std::vector<Piece> ShardMap::pieces_of_parameter(int parameter) const {
  const auto& placements = layout_.placements();
  ZERO_CHECK(parameter >= 0 && parameter < static_cast<int>(placements.size()),
             "shard map: parameter {} of a unit of {}; expected an index below that", parameter,
             placements.size());
  const Placement& placement = placements[static_cast<std::size_t>(parameter)];
  std::vector<Piece> pieces;
  if (placement.count == 0) return pieces;
  const std::int64_t first = placement.begin / layout_.shard();
  const std::int64_t last = (placement.begin + placement.count - 1) / layout_.shard();
  for (std::int64_t rank = first; rank <= last; ++rank) {
    pieces.push_back(piece_of(layout_, placement, static_cast<int>(rank)));
  }
  return pieces;
}

ShardMap::Range ShardMap::owned(int rank, std::int64_t begin, std::int64_t count) const {
  check_rank(layout_, rank);
  ZERO_CHECK(begin >= 0 && count >= 0 && begin <= layout_.padded() - count,
             "shard map: [{}, {} + {}) is outside a flat layout of {} elements", begin, begin,
             count, layout_.padded());
  const std::int64_t shard_begin = layout_.shard() * rank;
  const std::int64_t first = std::max(begin, shard_begin);
  const std::int64_t last = std::min(begin + count, shard_begin + layout_.shard());
  if (last <= first) return {};
  return {.begin = first - shard_begin, .count = last - first};
}

}  // namespace zero
