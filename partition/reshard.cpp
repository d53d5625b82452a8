// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#include <algorithm>

#include "base/error.h"
#include "partition/shard_map.h"

namespace zero {

namespace {

void check_same_parameters(const FlatLayout& from, const FlatLayout& to) {
  const auto& old_list = from.placements();
  const auto& new_list = to.placements();
  ZERO_CHECK(old_list.size() == new_list.size(),
             "reshard: the old layout holds {} parameters, the new one {}; both must hold the same",
             old_list.size(), new_list.size());
  for (std::size_t i = 0; i < old_list.size(); ++i) {
    ZERO_CHECK(old_list[i].count == new_list[i].count,
               "reshard: parameter {} has {} elements in the old layout, {} in the new one; both "
               "must hold the same parameters in the same order",
               i, old_list[i].count, new_list[i].count);
  }
}

}  // namespace

std::vector<Transfer> reshard(const FlatLayout& from, const FlatLayout& to, int to_rank) {
  check_same_parameters(from, to);
  std::vector<Transfer> transfers;
  for (const Piece& piece : ShardMap(to).pieces_of_rank(to_rank)) {
    // Walk the old owners of this run of logical elements.
    const std::int64_t old_begin =
        from.placements()[static_cast<std::size_t>(piece.parameter)].begin;
    std::int64_t done = 0;
    while (done < piece.count) {
      const std::int64_t flat = old_begin + piece.logical_begin + done;
      const std::int64_t owner = flat / from.shard();
      const std::int64_t within = flat - owner * from.shard();
      const std::int64_t count = std::min(piece.count - done, from.shard() - within);
      transfers.push_back({.parameter = piece.parameter,
                           .from_rank = static_cast<int>(owner),
                           .to_rank = to_rank,
                           .from_begin = within,
                           .to_begin = piece.shard_begin + done,
                           .count = count});
      done += count;
    }
  }
  return transfers;
}

}  // namespace zero
