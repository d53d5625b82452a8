// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#include "architecture/decoder_shape.h"

#include <algorithm>
#include <cmath>
#include <string_view>

#include "base/error.h"

namespace zero {
namespace {

void check_field(std::string_view field, std::int64_t value) {
  ZERO_CHECK(value >= 1 && value <= kLargestSize, "model.{} is {}, expected 1 to {}", field, value,
             kLargestSize);
}

}  // namespace

bool DecoderShape::has(BlockSlot slot) const {
  switch (slot) {
    case BlockSlot::norm1_bias:
    case BlockSlot::norm2_bias:
      return norm == NormKind::layer;
    case BlockSlot::qkv_bias:
      return biases != Biases::none;
    case BlockSlot::query_norm_weight:
    case BlockSlot::key_norm_weight:
      return head_norms;
    case BlockSlot::projection_norm_weight:
    case BlockSlot::output_norm_weight:
      return branch_norms;
    case BlockSlot::projection_bias:
    case BlockSlot::hidden_bias:
    case BlockSlot::output_bias:
      return biases == Biases::all;
    case BlockSlot::norm1_weight:
    case BlockSlot::qkv_weight:
    case BlockSlot::projection_weight:
    case BlockSlot::norm2_weight:
    case BlockSlot::hidden_weight:
    case BlockSlot::output_weight:
      break;
  }
  return true;
}

void DecoderShape::divide_width() {
  head_width = heads > 0 && width % heads == 0 ? width / heads : 0;
}

void DecoderShape::validate() const {
  check_field("layers", layers);
  check_field("width", width);
  check_field("heads", heads);
  check_field("kv_heads", kv_heads);
  check_field("intermediate", intermediate);
  check_field("context", context);
  check_field("vocabulary", vocabulary);
  ZERO_CHECK(heads % kv_heads == 0, "model.heads is {}, expected a multiple of model.kv_heads = {}",
             heads, kv_heads);
  ZERO_CHECK(head_width != 0, "model.width is {}, expected a multiple of model.heads = {}{}", width,
             heads, rotary ? ", or a model.head_width of its own" : "");
  check_field("head_width", head_width);
  ZERO_CHECK(!rotary || head_width % 2 == 0,
             "model.head_width is {}, expected an even number: rotary embeddings turn pairs",
             head_width);
  ZERO_CHECK(std::isfinite(epsilon) && epsilon > 0,
             "model.norm_epsilon is {}, expected more than 0", epsilon);
  if (rotary) rotary->validate();
  if (window != 0) check_field("window", window);
  ZERO_CHECK(
      !local_rotary || (rotary && window != 0),
      "model: rotary embeddings of local layers, expected rotary embeddings and model.window");
  if (local_rotary) local_rotary->validate();
  ZERO_CHECK(std::isfinite(score_scale) && score_scale >= 0,
             "model: attention's scores are multiplied by {}, expected more than 0, or 0 for "
             "1 / sqrt(model.head_width)",
             score_scale);
  ZERO_CHECK(std::isfinite(embedding_scale) && (embedding_scale == 1 || rotary),
             "model: the embedding is multiplied by {}, expected 1 beside a table of positions",
             embedding_scale);
  ZERO_CHECK(local_layers.empty() || window != 0,
             "model.local_layers is given without model.window; give both or neither");
  ZERO_CHECK(local_layers.empty() || std::ssize(local_layers) == layers,
             "model.local_layers is of {} layers, expected model.layers = {}", local_layers.size(),
             layers);
}

std::int64_t DecoderShape::block_matrices() const {
  return width * (qkv_width() + attended_width() + hidden_width() + intermediate);
}

double DecoderShape::attended_positions(std::int64_t layer, std::int64_t sequence) const {
  const auto all = static_cast<double>(sequence);
  const auto seen = static_cast<double>(window_of(layer));
  if (seen == 0 || seen >= all) return all;
  return seen * (2 * all - seen + 1) / (all + 1);
}

double DecoderShape::flop_per_token(std::int64_t sequence) const {
  // A table that tokens are only looked up in takes no arithmetic.
  const std::int64_t idle = head == Head::separate ? vocabulary * width : 0;
  const auto multiplied = static_cast<double>(parameter_count() - idle);
  double positions = 0;
  for (std::int64_t i = 0; i < layers; ++i) positions += attended_positions(i, sequence);
  return 6 * (multiplied + static_cast<double>(attended_width()) * positions);
}

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

void DecoderShape::validate(int tensor_ranks) const {
  validate();
  HeadSplit::of(heads, kv_heads, 0, tensor_ranks);
  check_share("model.vocabulary", vocabulary, tensor_ranks);
  check_share("model.intermediate", intermediate, tensor_ranks);
}

}  // namespace zero
