// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#include "architecture/decoder_parameters.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <utility>

#include "architecture/family.h"

namespace zero {
namespace {

const Init kNormal = init::normal(0.02F);

/// Of a norm that multiplies by one.
Init initial_weight(NormKind kind) {
  return kind == NormKind::rms_plus_one ? init::zeros() : init::ones();
}

/// The parameters that a block may have, by slot, without their names.
std::array<DecoderParameter, kBlockSlots> block_parameters(const DecoderSplit& split) {
  const DecoderShape& d = split.whole;
  std::array<DecoderParameter, kBlockSlots> slots;
  const auto at = [&](BlockSlot slot) -> DecoderParameter& {
    return slots[static_cast<std::size_t>(slot)];
  };
  // The 2 L products that add to the residual stream start smaller (Radford et al. 2019, section
  // 2.3).
  const Init residual = init::normal(0.02F / std::sqrt(2.0F * static_cast<float>(d.layers)));
  const auto matrix = [&](std::int64_t in, std::int64_t out, Init init) {
    return DecoderParameter{.in = in, .out = out, .layout = d.layout, .init = init};
  };
  slots.fill({.out = d.width});  // norms, and biases of what is added to the residual stream
  const Init of_norms = initial_weight(d.norm);
  for (const BlockSlot slot : {BlockSlot::norm1_weight, BlockSlot::norm2_weight,
                               BlockSlot::projection_norm_weight, BlockSlot::output_norm_weight}) {
    at(slot).init = of_norms;
  }
  at(BlockSlot::qkv_weight) = matrix(d.width, d.qkv_width(), kNormal);
  at(BlockSlot::qkv_bias).out = d.qkv_width();
  for (const BlockSlot slot : {BlockSlot::query_norm_weight, BlockSlot::key_norm_weight}) {
    at(slot) = {.out = d.head_width, .init = of_norms};
  }
  at(BlockSlot::projection_weight) = matrix(d.attended_width(), d.width, residual);
  at(BlockSlot::hidden_weight) = matrix(d.width, d.hidden_width(), kNormal);
  at(BlockSlot::hidden_bias).out = d.hidden_width();
  at(BlockSlot::output_weight) = matrix(d.intermediate, d.width, residual);
  at(BlockSlot::qkv_weight).outputs = at(BlockSlot::qkv_bias).outputs = split.qkv;
  at(BlockSlot::projection_weight).inputs = split.attended;
  at(BlockSlot::hidden_weight).outputs = at(BlockSlot::hidden_bias).outputs = split.hidden;
  at(BlockSlot::output_weight).inputs = split.middle;
  return slots;
}

}  // namespace

void TensorPart::read(const Read& read, std::int64_t first, std::span<float> values) const {
  const std::int64_t each = width();
  if (each == 0) return;
  const auto take = [&values](std::int64_t count) {
    const std::span<float> taken = values.first(static_cast<std::size_t>(count));
    values = values.subspan(taken.size());
    return taken;
  };
  const std::int64_t most = std::max<std::int64_t>(1, kPiece / all_columns);
  std::vector<float> piece;
  for (const auto& range : part_of(rows, first, std::ssize(values) / each)) {
    if (each == all_columns) {
      read(range.begin * all_columns, take(range.count * each));
      continue;
    }
    for (std::int64_t row = 0; row < range.count; row += most) {
      const std::int64_t count = std::min(most, range.count - row);
      piece.resize(static_cast<std::size_t>(count * all_columns));
      read((range.begin + row) * all_columns, piece);
      for (std::int64_t i = 0; i < count; ++i) {
        for (const TensorSlice::Range& held : columns) {
          const auto from = piece.begin() + i * all_columns + held.begin;
          std::copy(from, from + held.count, take(held.count).begin());
        }
      }
    }
  }
}

std::vector<std::int64_t> DecoderParameter::shape() const {
  if (in == 0) return rows == 0 ? std::vector{out} : std::vector{rows, out};
  return layout == WeightLayout::in_out ? std::vector{in, out} : std::vector{out, in};
}

std::int64_t DecoderParameter::elements() const { return (is_matrix() ? in : vectors()) * out; }

ParameterSpec DecoderParameter::spec() const {
  ParameterSpec spec{.name = name, .shape = shape(), .init = init, .full_name = name};
  const IndexRanges& held = outputs.empty() ? inputs : outputs;
  if (held.empty()) return spec;
  const bool outputs_first = !is_matrix() || layout == WeightLayout::out_in;
  TensorSlice slice{spec.shape, outputs_first == outputs.empty() ? 1 : 0, held};
  spec.shape = slice.local_shape();
  spec.slice = std::move(slice);
  return spec;
}

TensorPart DecoderParameter::part(std::int64_t begin, std::int64_t count) const {
  const auto all = [](std::int64_t length) { return IndexRanges{{0, length, 0}}; };
  const IndexRanges of_out = part_of(outputs.empty() ? all(out) : outputs, begin, count);
  if (!is_matrix()) return {all(vectors()), of_out, out};
  const IndexRanges of_in = inputs.empty() ? all(in) : inputs;
  if (layout == WeightLayout::in_out) return {of_in, of_out, out};
  return {of_out, of_in, in};
}

DecoderParameters::DecoderParameters(const DecoderSplit& split) {
  const DecoderShape& d = split.whole;
  const DecoderNames& names = d.family->tensors;
  const auto take = [&](DecoderParameter parameter, std::string name) {
    parameter.name = std::move(name);
    all.push_back(std::move(parameter));
    return all.size() - 1;
  };
  const auto end_unit = [&](std::string name) {
    units.push_back({std::move(name), units.empty() ? 0 : units.back().end, all.size()});
  };
  const DecoderParameter table{
      .in = d.width, .out = d.vocabulary, .outputs = split.vocabulary, .init = kNormal};
  embedding = take(table, std::string(names.tokens));
  if (!d.rotary) {
    positions =
        take({.out = d.width, .rows = d.context, .init = kNormal}, std::string(names.positions));
  }
  end_unit("embedding");
  const std::array<DecoderParameter, kBlockSlots> slots = block_parameters(split);
  for (std::int64_t i = 0; i < d.layers; ++i) {
    const std::string unit = fmt::format("{}{}", names.block_prefix, i);
    auto& of_block = blocks.emplace_back();
    of_block.fill(kNone);
    for (std::size_t at = 0; at < kBlockSlots; ++at) {
      const auto slot = static_cast<BlockSlot>(at);
      if (!d.has(slot)) continue;
      of_block[at] = take(slots[at], fmt::format("{}.{}", unit, names.block_tensors[slot]));
    }
    end_unit(unit);
  }
  const auto norm = [&](const char* name) { return fmt::format("{}.{}", names.norm_unit, name); };
  norm_weight = take({.out = d.width, .init = initial_weight(d.norm)}, norm("weight"));
  if (d.norm == NormKind::layer) norm_bias = take({.out = d.width}, norm("bias"));
  const bool tied = d.head == DecoderShape::Head::tied;
  head = tied ? embedding : take(table, std::string(names.head));
  end_unit(tied ? std::string(names.norm_unit) : "head");
}

std::vector<DecoderParameter> all_parameters(const DecoderShape& shape) {
  return DecoderParameters(DecoderSplit::of(shape, 0, 1)).all;
}

// Of the shape, but here: the table above is what is counted.
std::int64_t DecoderShape::parameter_count() const {
  std::int64_t elements = 0;
  for (const DecoderParameter& each : all_parameters(*this)) elements += each.elements();
  return elements;
}

}  // namespace zero
