// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#include "architecture/decoder_shape.h"

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

}  // namespace zero
