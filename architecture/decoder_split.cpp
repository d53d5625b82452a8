// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#include "architecture/decoder_split.h"

#include <algorithm>

#include "base/error.h"

namespace zero {

std::int64_t count_of(const IndexRanges& ranges) {
  std::int64_t count = 0;
  for (const TensorSlice::Range& range : ranges) count += range.count;
  return count;
}

IndexRanges part_of(const IndexRanges& ranges, std::int64_t begin, std::int64_t count) {
  IndexRanges part;
  for (const TensorSlice::Range& range : ranges) {
    const std::int64_t from = std::max<std::int64_t>(begin, 0);
    const std::int64_t to = std::min(begin + count, range.count);
    if (from < to) part.push_back({range.begin + from, to - from, range.copy, range.holders});
    begin -= range.count;
  }
  return part;
}

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
    split.keys = {head, 1, copy, static_cast<int>(holders.count)};
    split.queries = even_range(group, copy, split.keys.holders);
    split.queries.begin += head * group;
  }
  return split;
}

IndexRanges HeadSplit::qkv(std::int64_t heads, std::int64_t kv_heads,
                           std::int64_t head_width) const {
  const auto elements = [&](std::int64_t before, const TensorSlice::Range& range) {
    return TensorSlice::Range{(before + range.begin) * head_width, range.count * head_width,
                              range.copy, range.holders};
  };
  return {elements(0, queries), elements(heads, keys), elements(heads + kv_heads, keys)};
}

TensorSlice::Range HeadSplit::attended(std::int64_t head_width) const {
  return {queries.begin * head_width, queries.count * head_width, 0};
}

DecoderSplit DecoderSplit::of(const DecoderShape& whole, int rank, int ranks, Tables tables) {
  DecoderSplit split{.whole = whole,
                     .local = whole,
                     .heads = HeadSplit::of(whole.heads, whole.kv_heads, rank, ranks)};
  if (ranks == 1) return split;
  check_share("model.intermediate", whole.intermediate, ranks);
  const TensorSlice::Range middle = even_range(whole.intermediate, rank, ranks);
  split.qkv = split.heads.qkv(whole.heads, whole.kv_heads, whole.head_width);
  split.attended = {split.heads.attended(whole.head_width)};
  split.hidden = split.middle = {middle};
  if (whole.gated()) {
    split.hidden.push_back({whole.intermediate + middle.begin, middle.count, 0});
  }
  split.local.heads = split.heads.queries.count;
  split.local.kv_heads = split.heads.keys.count;
  split.local.intermediate = middle.count;
  if (tables == Tables::whole) return split;
  check_share("model.vocabulary", whole.vocabulary, ranks);
  split.vocabulary = {even_range(whole.vocabulary, rank, ranks)};
  split.local.vocabulary = split.vocabulary[0].count;
  return split;
}

// Of the shape, but here: the split above is what is checked.
void DecoderShape::validate(int tensor_ranks) const {
  validate();
  HeadSplit::of(heads, kv_heads, 0, tensor_ranks);
  check_share("model.vocabulary", vocabulary, tensor_ranks);
  check_share("model.intermediate", intermediate, tensor_ranks);
}

}  // namespace zero
