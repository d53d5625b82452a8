// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#include "inference/decoder_split.h"

#include "architecture/head_split.h"

namespace zero {

DecoderSplit DecoderSplit::of(const DecoderShape& whole, int rank, int ranks) {
  const HeadSplit heads = HeadSplit::of(whole.heads, whole.kv_heads, rank, ranks);
  check_share("model.intermediate", whole.intermediate, ranks);
  const TensorSlice::Range middle = even_range(whole.intermediate, rank, ranks);
  DecoderSplit split{.whole = whole,
                     .local = whole,
                     .qkv = heads.qkv(whole.heads, whole.kv_heads, whole.head_width),
                     .attended = {heads.attended(whole.head_width)},
                     .hidden = {middle},
                     .middle = {middle}};
  split.local.heads = heads.queries.count;
  split.local.kv_heads = heads.keys.count;
  split.local.intermediate = middle.count;
  if (whole.activation == DecoderShape::Activation::swiglu) {
    split.hidden.push_back({whole.intermediate + middle.begin, middle.count, 0});
  }
  return split;
}

}  // namespace zero
