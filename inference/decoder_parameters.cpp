// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#include "inference/decoder_parameters.h"

#include <fmt/format.h>

#include <utility>

namespace zero {
namespace {

/// The parameters of a block that the family has, by slot; others have no name.
std::array<DecoderParameter, kBlockSlots> block_parameters(const DecoderSplit& split,
                                                           std::int64_t block) {
  const DecoderShape& d = split.whole;
  std::array<DecoderParameter, kBlockSlots> slots;
  const auto at = [&](BlockSlot slot) -> DecoderParameter& {
    return slots[static_cast<std::size_t>(slot)];
  };
  const auto matrix = [&](std::int64_t in, std::int64_t out) {
    return DecoderParameter{.in = in, .out = out, .layout = d.layout};
  };
  slots.fill({.out = d.width});  // norms, and biases of what is added to the residual stream
  at(BlockSlot::qkv_weight) = matrix(d.width, d.qkv_width());
  at(BlockSlot::qkv_weight).outputs = split.qkv;
  at(BlockSlot::qkv_bias) = {.out = d.qkv_width(), .outputs = split.qkv};
  at(BlockSlot::projection_weight) = matrix(d.attended_width(), d.width);
  at(BlockSlot::projection_weight).inputs = split.attended;
  at(BlockSlot::hidden_weight) = matrix(d.width, d.hidden_width());
  at(BlockSlot::hidden_weight).outputs = split.hidden;
  at(BlockSlot::hidden_bias) = {.out = d.hidden_width(), .outputs = split.hidden};
  at(BlockSlot::output_weight) = matrix(d.intermediate, d.width);
  at(BlockSlot::output_weight).inputs = split.middle;
  for (std::size_t i = 0; i < kBlockSlots; ++i) {
    if (d.block_names[i].empty()) continue;
    slots[i].name = fmt::format("{}{}.{}", d.block_prefix, block, d.block_names[i]);
  }
  return slots;
}

}  // namespace

std::vector<std::int64_t> DecoderParameter::shape() const {
  if (in == 0) return rows == 1 ? std::vector{out} : std::vector{rows, out};
  return layout == WeightLayout::in_out ? std::vector{in, out} : std::vector{out, in};
}

TensorPart DecoderParameter::part(std::int64_t begin, std::int64_t count) const {
  const auto all = [](std::int64_t length) { return IndexRanges{{0, length, 0}}; };
  const IndexRanges of_out = part_of(outputs.empty() ? all(out) : outputs, begin, count);
  if (!is_matrix()) return {all(rows), of_out, out};
  const IndexRanges of_in = inputs.empty() ? all(in) : inputs;
  if (layout == WeightLayout::in_out) return {of_in, of_out, out};
  return {of_out, of_in, in};
}

DecoderParameters::DecoderParameters(const DecoderSplit& split) {
  const DecoderShape& d = split.whole;
  const auto in_norm = [&](const std::string& name) {
    return name.empty() ? name : fmt::format("{}.{}", d.norm_unit, name);
  };
  const auto take = [&](DecoderParameter parameter, std::string name) {
    if (name.empty()) return kNone;
    parameter.name = std::move(name);
    all.push_back(std::move(parameter));
    return all.size() - 1;
  };
  const DecoderParameter table{.in = d.width, .out = d.vocabulary};
  embedding = take(table, d.tokens_name);
  positions = take({.out = d.width, .rows = d.context}, d.positions_name);
  for (std::int64_t i = 0; i < d.layers; ++i) {
    std::array<DecoderParameter, kBlockSlots> slots = block_parameters(split, i);
    auto& of_block = blocks.emplace_back();
    for (std::size_t slot = 0; slot < kBlockSlots; ++slot) {
      of_block[slot] = take(slots[slot], slots[slot].name);
    }
  }
  norm_weight = take({.out = d.width}, in_norm(d.norm_weight));
  norm_bias = take({.out = d.width}, in_norm(d.norm_bias));
  head = d.head == DecoderShape::Head::separate ? take(table, d.head_name) : embedding;
}

}  // namespace zero
