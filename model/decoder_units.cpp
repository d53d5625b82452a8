// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0

// The parameters of a decoder and their layers.
#include <fmt/format.h>

#include <array>
#include <cmath>
#include <utility>

#include "model/decoder.h"
#include "model/tensor_specs.h"

namespace zero {
namespace {

ParameterSpec full_named(ParameterSpec spec) {
  spec.full_name = spec.name;
  return spec;
}

ParameterSpec named(const std::string& full_name, std::vector<std::int64_t> shape, Init init) {
  return full_named({.name = full_name, .shape = std::move(shape), .init = init});
}

// The slots a family fills, in order.
std::vector<BlockSlot> filled_slots(const DecoderShape& decoder) {
  std::vector<BlockSlot> slots;
  for (std::size_t i = 0; i < kBlockSlots; ++i) {
    if (!decoder.block_names[i].empty()) slots.push_back(static_cast<BlockSlot>(i));
  }
  return slots;
}

}  // namespace

// Shape and initial values of this rank's part of the parameter in a slot.
ParameterSpec Decoder::block_parameter(BlockSlot slot) const {
  const Init normal = init::normal(0.02F);
  // The 2 L products that add to the residual stream start smaller (Radford et al. 2019, section
  // 2.3).
  const Init residual = init::normal(0.02F / std::sqrt(2.0F * static_cast<float>(decoder_.layers)));
  const std::string& name = decoder_.name(slot);
  switch (slot) {
    case BlockSlot::norm1_weight:
    case BlockSlot::norm2_weight:
      return {.name = name, .shape = {decoder_.width}, .init = init::ones()};
    case BlockSlot::norm1_bias:
    case BlockSlot::norm2_bias:
      return {.name = name, .shape = {decoder_.width}};
    case BlockSlot::qkv_weight:
      return qkv_.weight(name, normal);
    case BlockSlot::qkv_bias:
      return qkv_.bias(name);
    case BlockSlot::projection_weight:
      return projection_.weight(name, residual);
    case BlockSlot::projection_bias:
      return projection_.bias(name);
    case BlockSlot::hidden_weight:
      return hidden_.weight(name, normal);
    case BlockSlot::hidden_bias:
      return hidden_.bias(name);
    case BlockSlot::output_weight:
      return output_.weight(name, residual);
    case BlockSlot::output_bias:
      return output_.bias(name);
  }
  return {};
}

void Decoder::register_units() {
  const DecoderShape& d = decoder_;
  std::vector<ParameterSpec> tables{
      full_named(embedding_layer_.tokens(d.tokens_name, init::normal(0.02F)))};
  if (positions_ != kAbsent) {
    tables.push_back(named(d.positions_name, {d.context, d.width}, init::normal(0.02F)));
  }
  embedding_ = engine_.add_unit("embedding", tables);
  std::vector<ParameterSpec> of_block;
  for (const BlockSlot slot : filled_slots(d)) of_block.push_back(block_parameter(slot));
  for (std::int64_t i = 0; i < d.layers; ++i) {
    blocks_.push_back(engine_.add_unit(d.block_prefix + std::to_string(i), of_block));
  }
  const auto of_norm = [&](const std::string& name, Init init) {
    return named(d.norm_unit + "." + name, {d.width}, init);
  };
  std::vector<ParameterSpec> of_last{of_norm(d.norm_weight, init::ones())};
  if (!d.norm_bias.empty()) of_last.push_back(of_norm(d.norm_bias, init::zeros()));
  if (!tied()) of_last.push_back(full_named(head_.weight(d.head_name, init::normal(0.02F))));
  last_ = engine_.add_unit(tied() ? d.norm_unit : "head", of_last);
}

void Decoder::make_layers() {
  const DecoderShape& d = decoder_;
  std::array<int, kBlockSlots> at{};
  at.fill(kAbsent);
  int next = 0;
  for (const BlockSlot slot : filled_slots(d)) at[static_cast<std::size_t>(slot)] = next++;
  const auto index = [&](BlockSlot slot) { return at[static_cast<std::size_t>(slot)]; };
  using enum BlockSlot;
  const auto epsilon = static_cast<float>(d.epsilon);
  norm1_ = {own_rows(), index(norm1_weight), index(norm1_bias), epsilon};
  norm2_ = {own_rows(), index(norm2_weight), index(norm2_bias), epsilon};
  const auto row = [&](BlockSlot weight, BlockSlot bias, std::int64_t in,
                       const TensorSlice::Range& inputs) {
    return RowParallelLinear(tensor_, {.whole = linear(in, d.width),
                                       .at = {index(weight), index(bias)},
                                       .name = d.name(weight),
                                       .inputs = {inputs}});
  };
  const TensorSlice::Range middle = even_share("model.intermediate", whole_.intermediate, tensor_);
  std::vector<TensorSlice::Range> hidden{middle};
  if (d.activation == DecoderShape::Activation::swiglu) {
    hidden.push_back({whole_.intermediate + middle.begin, middle.count, 0});
  }
  qkv_ = ColumnParallelLinear(tensor_,
                              {.whole = linear(d.width, whole_.qkv_width()),
                               .at = {index(qkv_weight), index(qkv_bias)},
                               .name = d.name(qkv_weight),
                               .outputs = heads_.qkv(whole_.heads, whole_.kv_heads, d.head_width),
                               .shared = shared_keys()});
  projection_ = row(projection_weight, projection_bias, whole_.attended_width(),
                    heads_.attended(d.head_width));
  hidden_ = ColumnParallelLinear(tensor_, {.whole = linear(d.width, whole_.hidden_width()),
                                           .at = {index(hidden_weight), index(hidden_bias)},
                                           .name = d.name(hidden_weight),
                                           .outputs = std::move(hidden)});
  output_ = row(output_weight, output_bias, whole_.intermediate, middle);
  make_ends();
}

// If there are fewer key/value heads than ranks, several ranks hold the same: k and v follow a
// rank's queries. Every rank of the axis takes part in the split.
ColumnParallelLinear::Options::Shared Decoder::shared_keys() {
  if (whole_.kv_heads >= tensor_.ranks()) return {};
  Communicator& holders = engine_.mesh().split(
      Axis::tensor, {static_cast<int>(heads_.keys.begin), heads_.keys.copy, heads_.holders});
  return {&holders, {decoder_.attended_width(), 2 * decoder_.kv_heads * decoder_.head_width}};
}

void Decoder::make_ends() {
  const DecoderShape& d = decoder_;
  if (!d.positions_name.empty()) positions_ = kTokens + 1;
  embedding_layer_ = VocabularyParallelEmbedding(
      tensor_, {batch_.batch, batch_.sequence, d.width, whole_.vocabulary, dtype_},
      {kTokens, positions_});
  last_norm_ = {own_rows(), 0, d.norm_bias.empty() ? kAbsent : 1, static_cast<float>(d.epsilon)};
  if (!tied()) head_weight_ = d.norm_bias.empty() ? 1 : 2;
  head_ = VocabularyParallelHead(
      tensor_, {.rows = rows_, .in = d.width, .out = whole_.vocabulary, .dtype = dtype_});
}

}  // namespace zero
