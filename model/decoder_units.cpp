// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0

// The units of a decoder and its layers.
#include <string>
#include <utility>
#include <vector>

#include "architecture/family.h"
#include "model/decoder.h"

namespace zero {

void Decoder::register_units(const DecoderParameters& parameters) {
  std::vector<UnitId> units;
  for (const DecoderParameters::Unit& unit : parameters.units) {
    std::vector<ParameterSpec> specs;
    for (std::size_t i = unit.begin; i < unit.end; ++i) specs.push_back(parameters.all[i].spec());
    units.push_back(engine_.add_unit(unit.name, specs));
  }
  embedding_ = units.front();
  last_ = units.back();
  blocks_.assign(units.begin() + 1, units.end() - 1);
}

void Decoder::make_layers(const DecoderParameters& parameters) {
  const DecoderShape& d = decoder_;
  const auto index = [&](BlockSlot slot) {
    return parameters.index_in_unit(1, parameters.in_block(0, slot));
  };
  const auto name = [&](BlockSlot slot) {
    return std::string(d.family->tensors.block_tensors[slot]);
  };
  using enum BlockSlot;
  const auto epsilon = static_cast<float>(d.epsilon);
  const bool plus_one = d.norm == NormKind::rms_plus_one;
  norm1_ = {own_rows(), index(norm1_weight), index(norm1_bias), epsilon, plus_one};
  norm2_ = {own_rows(), index(norm2_weight), index(norm2_bias), epsilon, plus_one};
  projection_norm_ = {own_rows(), index(projection_norm_weight), kAbsent, epsilon, plus_one};
  output_norm_ = {own_rows(), index(output_norm_weight), kAbsent, epsilon, plus_one};
  if (d.head_norms) {
    head_norms_ = {head_rows(), index(query_norm_weight), index(key_norm_weight), epsilon,
                   plus_one};
  }
  const auto column = [&](BlockSlot weight, BlockSlot bias, std::int64_t out,
                          const IndexRanges& outputs) {
    return ColumnParallelLinear::Options{.whole = linear(d.width, out),
                                         .at = {index(weight), index(bias)},
                                         .name = name(weight),
                                         .outputs = outputs};
  };
  const auto row = [&](BlockSlot weight, BlockSlot bias, std::int64_t in,
                       const IndexRanges& inputs) {
    return RowParallelLinear(tensor_, {.whole = linear(in, d.width),
                                       .at = {index(weight), index(bias)},
                                       .name = name(weight),
                                       .inputs = inputs});
  };
  auto qkv = column(qkv_weight, qkv_bias, whole_.qkv_width(), split_.qkv);
  qkv.shared = shared_keys();
  qkv_ = ColumnParallelLinear(tensor_, std::move(qkv));
  projection_ = row(projection_weight, projection_bias, whole_.attended_width(), split_.attended);
  hidden_ = ColumnParallelLinear(
      tensor_, column(hidden_weight, hidden_bias, whole_.hidden_width(), split_.hidden));
  output_ = row(output_weight, output_bias, whole_.intermediate, split_.middle);
  make_ends(parameters);
}

// If there are fewer key/value heads than ranks, several ranks hold the same: k and v follow a
// rank's queries. Every rank of the axis takes part in the split.
ColumnParallelLinear::Options::Shared Decoder::shared_keys() {
  if (whole_.kv_heads >= tensor_.ranks()) return {};
  const HeadSplit& heads = split_.heads;
  Communicator& holders = engine_.mesh().split(
      Axis::tensor, {static_cast<int>(heads.keys.begin), heads.keys.copy, heads.keys.holders});
  return {&holders, {decoder_.attended_width(), 2 * decoder_.kv_heads * decoder_.head_width}};
}

void Decoder::make_ends(const DecoderParameters& parameters) {
  const DecoderShape& d = decoder_;
  const std::size_t last = parameters.units.size() - 1;
  positions_ = parameters.index_in_unit(0, parameters.positions);
  embedding_layer_ = VocabularyParallelEmbedding(
      tensor_, {batch_.batch, batch_.sequence, d.width, whole_.vocabulary, dtype_},
      {kTokens, positions_});
  last_norm_ = {own_rows(), parameters.index_in_unit(last, parameters.norm_weight),
                parameters.index_in_unit(last, parameters.norm_bias), static_cast<float>(d.epsilon),
                d.norm == NormKind::rms_plus_one};
  if (!tied()) head_weight_ = parameters.index_in_unit(last, parameters.head);
  head_ = VocabularyParallelHead(
      tensor_, {.rows = rows_, .in = d.width, .out = whole_.vocabulary, .dtype = dtype_});
}

}  // namespace zero
