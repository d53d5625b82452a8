// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#include "inference/model_weights.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstddef>
#include <utility>

#include "base/checked_math.h"
#include "base/error.h"
#include "device/cpu/primitives.h"

namespace zero {
namespace {

/// A matrix if `in` is not 0; else a vector, or a table of `rows` of them.
struct Parameter {
  std::int64_t in = 0;
  std::int64_t out = 0;
  WeightLayout layout = WeightLayout::out_in;
  std::int64_t rows = 1;
  std::string name{};

  std::vector<std::int64_t> shape() const {
    if (in == 0) return rows == 1 ? std::vector{out} : std::vector{rows, out};
    return layout == WeightLayout::in_out ? std::vector{in, out} : std::vector{out, in};
  }
};

/// The parameters of a block that the family has, by slot; others have no name.
std::array<Parameter, kBlockSlots> block_parameters(const DecoderShape& d, std::int64_t block) {
  const Parameter width{.out = d.width};
  std::array<Parameter, kBlockSlots> slots;
  const auto at = [&](BlockSlot slot) -> Parameter& {
    return slots[static_cast<std::size_t>(slot)];
  };
  slots.fill(width);  // norms, and biases of what is added to the residual stream
  at(BlockSlot::qkv_weight) = {d.width, d.qkv_width(), d.layout};
  at(BlockSlot::qkv_bias) = {.out = d.qkv_width()};
  at(BlockSlot::projection_weight) = {d.attended_width(), d.width, d.layout};
  at(BlockSlot::hidden_weight) = {d.width, d.hidden_width(), d.layout};
  at(BlockSlot::hidden_bias) = {.out = d.hidden_width()};
  at(BlockSlot::output_weight) = {d.intermediate, d.width, d.layout};
  for (std::size_t i = 0; i < kBlockSlots; ++i) {
    if (d.block_names[i].empty()) continue;
    slots[i].name = fmt::format("{}{}.{}", d.block_prefix, block, d.block_names[i]);
  }
  return slots;
}

/// Calls add(parameter, index), with the member that is to hold the parameter's index, for all
/// parameters in order.
template <typename Places, typename Add>
void for_each_parameter(const DecoderShape& d, Places& places, const Add& add) {
  const auto in_norm = [&](const std::string& name) {
    return name.empty() ? name : fmt::format("{}.{}", d.norm_unit, name);
  };
  const Parameter table{d.width, d.vocabulary};
  const auto take = [&](Parameter parameter, const std::string& name, std::size_t& index) {
    parameter.name = name;
    if (!name.empty()) add(parameter, index);
  };
  take(table, d.tokens_name, places.embedding);
  take({.out = d.width, .rows = d.context}, d.positions_name, places.positions);
  places.blocks.resize(static_cast<std::size_t>(d.layers));
  for (std::int64_t i = 0; i < d.layers; ++i) {
    auto& of_block = places.blocks[static_cast<std::size_t>(i)];
    const std::array<Parameter, kBlockSlots> slots = block_parameters(d, i);
    for (std::size_t slot = 0; slot < kBlockSlots; ++slot) {
      of_block[slot] = places.kNone;
      take(slots[slot], slots[slot].name, of_block[slot]);
    }
  }
  take({.out = d.width}, in_norm(d.norm_weight), places.norm_weight);
  take({.out = d.width}, in_norm(d.norm_bias), places.norm_bias);
  places.head = places.embedding;
  if (d.head == DecoderShape::Head::separate) take(table, d.head_name, places.head);
}

}  // namespace

ModelWeights::ModelWeights(Device& device, InferenceOps& ops, const DecoderShape& decoder,
                           DType dtype, WeightFormat format)
    : device_(device), ops_(ops) {
  for_each_parameter(decoder, places_, [&](const Parameter& parameter, std::size_t& index) {
    index = buffers_.size();
    const WeightShape shape{parameter.in, parameter.out, parameter.layout, dtype, format};
    names_.push_back(parameter.name);
    shapes_.push_back(shape);
    buffers_.push_back(shape.in > 0 ? device_.allocate(ops_.weight_bytes(shape), DType::u8,
                                                       MemoryClass::parameters, "matrices")
                                    : device_.allocate(parameter.rows * parameter.out, dtype,
                                                       MemoryClass::parameters, "vectors"));
  });
}

std::vector<LogicalTensor> ModelWeights::tensors(const DecoderShape& decoder) {
  std::vector<LogicalTensor> all;
  Places places;
  for_each_parameter(decoder, places, [&](const Parameter& parameter, std::size_t& /*index*/) {
    all.push_back({.name = parameter.name, .shape = parameter.shape()});
  });
  return all;
}

void ModelWeights::load(const Read& read) {
  for (std::size_t i = 0; i < buffers_.size(); ++i) {
    if (shapes_[i].in > 0) {
      load_matrix(read, i);
      continue;
    }
    load_vector(read, i);
  }
}

// Rounded on the host: a GPU's copies from there change no type.
void ModelWeights::load_vector(const Read& read, std::size_t tensor) {
  const View& to = buffers_[tensor].view();
  std::vector<float> values(static_cast<std::size_t>(to.count()));
  read(tensor, 0, values);
  std::vector<std::byte> bytes(static_cast<std::size_t>(to.bytes()));
  const View rounded(bytes.data(), to.count(), to.dtype(), nullptr);
  cpu::convert(View::of(std::span(values)), rounded);
  device_.kernels().convert(device_.compute(), rounded, to);
  device_.compute().synchronize();
}

void ModelWeights::load_matrix(const Read& read, std::size_t tensor) {
  constexpr std::int64_t kBytes = std::int64_t{16} << 20;  // of a piece, about
  const WeightShape& shape = shapes_[tensor];
  const std::int64_t rows = shape.file_rows();
  const std::int64_t columns = shape.file_columns();
  const std::int64_t step =
      round_up(std::max<std::int64_t>(1, kBytes / 4 / columns), InferenceOps::pack_rows(shape));
  std::vector<float> values(static_cast<std::size_t>(std::min(step, rows) * columns));
  for (std::int64_t first = 0; first < rows; first += step) {
    const std::int64_t count = std::min(step, rows - first);
    const auto piece = std::span(values).first(static_cast<std::size_t>(count * columns));
    read(tensor, first * columns, piece);
    try {
      ops_.pack(shape, first, piece, buffers_[tensor].view());
    } catch (const Error& error) {
      fail("tensor \"{}\": {}", names_[tensor], error.what());
    }
  }
}

}  // namespace zero
