// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#include "architecture/decoder_split.h"

namespace zero {

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

}  // namespace zero
