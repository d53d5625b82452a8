// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#include "architecture/head_split.h"

#include "base/error.h"

namespace zero {

void check_share(std::string_view what, std::int64_t total, int ranks) {
  ZERO_CHECK(total >= ranks,
             "{}: {} cannot be cut over {} tensor ranks, each of which needs one; use at most {} "
             "tensor ranks",
             what, total, ranks, total);
}

HeadSplit HeadSplit::of(std::int64_t heads, std::int64_t kv_heads, int rank, int ranks) {
  ZERO_CHECK(ranks <= heads,
             "{} heads of attention cannot be cut over {} tensor ranks, each of which needs one; "
             "use at most {} tensor ranks",
             heads, ranks, heads);
  const std::int64_t group = heads / kv_heads;
  HeadSplit split;
  if (kv_heads >= ranks) {
    split.keys = even_range(kv_heads, rank, ranks);
    split.queries = {split.keys.begin * group, split.keys.count * group, 0};
    return split;
  }
  for (int head = 0; head < kv_heads; ++head) {
    const TensorSlice::Range holders = even_range(ranks, head, static_cast<int>(kv_heads));
    if (rank < holders.begin || rank >= holders.begin + holders.count) continue;
    const int copy = rank - static_cast<int>(holders.begin);
    split.holders = static_cast<int>(holders.count);
    split.keys = {head, 1, copy};
    split.queries = even_range(group, copy, split.holders);
    split.queries.begin += head * group;
  }
  return split;
}

std::vector<TensorSlice::Range> HeadSplit::qkv(std::int64_t heads, std::int64_t kv_heads,
                                               std::int64_t head_width) const {
  const auto elements = [&](std::int64_t before, const TensorSlice::Range& range) {
    return TensorSlice::Range{(before + range.begin) * head_width, range.count * head_width,
                              range.copy};
  };
  return {elements(0, queries), elements(heads, keys), elements(heads + kv_heads, keys)};
}

TensorSlice::Range HeadSplit::attended(std::int64_t head_width) const {
  return {queries.begin * head_width, queries.count * head_width, 0};
}

}  // namespace zero
