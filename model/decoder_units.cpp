// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0

// The parameters of a decoder, and which layer has which.
#include <fmt/format.h>

#include <array>
#include <cmath>

#include "model/decoder_impl.h"

namespace zero {
namespace {

ParameterSpec named(const std::string& full_name, std::vector<std::int64_t> shape, Init init) {
  return {.name = full_name, .shape = std::move(shape), .init = init, .full_name = full_name};
}

std::vector<std::int64_t> matrix_shape(const DecoderShape& decoder, std::int64_t in,
                                       std::int64_t out) {
  return decoder.layout == WeightLayout::in_out ? std::vector{in, out} : std::vector{out, in};
}

// Shape and initial values of the parameter a slot holds.
ParameterSpec block_parameter(const DecoderShape& d, BlockSlot slot) {
  const Init normal = init::normal(0.02F);
  // What adds to the residual stream 2 L times starts smaller (Radford et al. 2019, section 2.3).
  const Init residual = init::normal(0.02F / std::sqrt(2.0F * static_cast<float>(d.layers)));
  const auto spec = [&](std::vector<std::int64_t> shape, Init init) {
    return ParameterSpec{.name = d.name(slot), .shape = std::move(shape), .init = init};
  };
  switch (slot) {
    case BlockSlot::norm1_weight:
    case BlockSlot::norm2_weight:
      return spec({d.width}, init::ones());
    case BlockSlot::norm1_bias:
    case BlockSlot::norm2_bias:
    case BlockSlot::projection_bias:
    case BlockSlot::output_bias:
      return spec({d.width}, init::zeros());
    case BlockSlot::qkv_weight:
      return spec(matrix_shape(d, d.width, d.qkv_width()), normal);
    case BlockSlot::qkv_bias:
      return spec({d.qkv_width()}, init::zeros());
    case BlockSlot::projection_weight:
      return spec(matrix_shape(d, d.attended_width(), d.width), residual);
    case BlockSlot::hidden_weight:
      return spec(matrix_shape(d, d.width, d.hidden_width()), normal);
    case BlockSlot::hidden_bias:
      return spec({d.hidden_width()}, init::zeros());
    case BlockSlot::output_weight:
      return spec(matrix_shape(d, d.intermediate, d.width), residual);
  }
  return {};
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

void Decoder::Impl::register_units() {
  const DecoderShape& d = decoder;
  std::vector<ParameterSpec> tables{
      named(d.tokens_name, {d.vocabulary, d.width}, init::normal(0.02F))};
  if (!d.positions_name.empty()) {
    positions_ = static_cast<int>(tables.size());
    tables.push_back(named(d.positions_name, {d.context, d.width}, init::normal(0.02F)));
  }
  embedding_ = engine_.add_unit("embedding", tables);
  std::vector<ParameterSpec> of_block;
  for (const BlockSlot slot : filled_slots(d)) of_block.push_back(block_parameter(d, slot));
  for (std::int64_t i = 0; i < d.layers; ++i) {
    blocks_.push_back(engine_.add_unit(d.block_prefix + std::to_string(i), of_block));
  }
  const auto of_norm = [&](const std::string& name, Init init) {
    return named(d.norm_unit + "." + name, {d.width}, init);
  };
  std::vector<ParameterSpec> of_last{of_norm(d.norm_weight, init::ones())};
  last_norm_ = {matrix(d.width), 0, kAbsent, d.epsilon};
  if (!d.norm_bias.empty()) {
    last_norm_.bias = static_cast<int>(of_last.size());
    of_last.push_back(of_norm(d.norm_bias, init::zeros()));
  }
  if (!tied()) {
    head_weight_ = static_cast<int>(of_last.size());
    of_last.push_back(named(d.head_name, {d.vocabulary, d.width}, init::normal(0.02F)));
  }
  last_ = engine_.add_unit(tied() ? d.norm_unit : "head", of_last);
}

void Decoder::Impl::make_layers() {
  const DecoderShape& d = decoder;
  std::array<int, kBlockSlots> at{};
  at.fill(kAbsent);
  int next = 0;
  for (const BlockSlot slot : filled_slots(d)) at[static_cast<std::size_t>(slot)] = next++;
  const auto index = [&](BlockSlot slot) { return at[static_cast<std::size_t>(slot)]; };
  using enum BlockSlot;
  norm1_ = {matrix(d.width), index(norm1_weight), index(norm1_bias), d.epsilon};
  qkv_ = {linear(d.width, d.qkv_width()), index(qkv_weight), index(qkv_bias)};
  projection_ = {linear(d.attended_width(), d.width), index(projection_weight),
                 index(projection_bias)};
  norm2_ = {matrix(d.width), index(norm2_weight), index(norm2_bias), d.epsilon};
  hidden_ = {linear(d.width, d.hidden_width()), index(hidden_weight), index(hidden_bias)};
  output_ = {linear(d.intermediate, d.width), index(output_weight), index(output_bias)};
}

}  // namespace zero
