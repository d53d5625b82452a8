// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#include "inference/model_weights.h"

#include <algorithm>
#include <functional>
#include <numeric>
#include <string>
#include <string_view>

#include "base/checked_math.h"
#include "base/error.h"
#include "base/sign_of_life.h"
#include "collectives/agreement.h"
#include "device/cpu/primitives.h"
#include "inference/inference_options.h"

namespace zero {
namespace {

/// A rank's inputs may begin inside a group, whose scale several groups of the rank then have.
std::int64_t held_group(std::int64_t group, const DecoderParameter& parameter) {
  if (parameter.inputs.empty()) return group;
  const std::int64_t begin = parameter.inputs.front().begin;
  const std::int64_t held = std::gcd(group, begin);
  ZERO_CHECK(group == 0 || held % kTile == 0,
             "tensor \"{}\": a rank's inputs begin at {}, in groups of {} with one scale: expected "
             "a multiple of {}; take fewer ranks in a tensor group",
             parameter.name, begin, group, kTile);
  return group == 0 ? 0 : held;
}

/// agree() among all ranks of the model. On one rank, and in a plan, a failure of `work` is thrown
/// as an AgreedError too.
void agree_among(const ModelRanks& ranks, Device& device, std::string_view purpose,
                 const std::function<void()>& work) {
  if (ranks.all.communicator != nullptr && device.has_memory()) {
    return agree(*ranks.all.communicator, device, purpose, work);
  }
  const std::string why = failure_of(work);
  if (!why.empty()) throw AgreedError(why);
}

}  // namespace

ModelWeights::ModelWeights(Device& device, InferenceOps& ops, const DecoderSplit& split,
                           const ModelRanks& ranks, const Options& options)
    : device_(device),
      ops_(ops),
      ranks_(ranks),
      blocks_(split.whole.layers),
      options_(options),
      parameters_(split),
      layout_(ops, block_shapes(), ranks.shard.rank, ranks.shard.size),
      shards_(
          device, ranks.shard.communicator,
          {.blocks = split.whole.layers, .bytes = layout_.shard_bytes(), .slots = options.windows},
          options.file) {
  split_vocabulary(split.whole.vocabulary);
  add_table(parameters_.embedding);
  if (parameters_.head != parameters_.embedding) add_table(parameters_.head);
  for (const DecoderParameter& each : parameters_.all) {
    const std::int64_t count = each.is_matrix() ? 0 : each.vectors() * each.held_out();
    vectors_.push_back(device.allocate(count, options.dtype, MemoryClass::parameters, "vectors"));
  }
  Communicator* const group = ranks.shard.communicator;
  if (shards_.in_file()) agree_among(ranks, device, "files of blocks", [&] { shards_.open(); });
  if (group != nullptr) {
    windows_ = std::make_unique<BlockWindows>(
        device, *group, layout_,
        BlockWindows::Size{.blocks = split.whole.layers, .windows = options.windows}, shards_);
  }
}

WeightFormat ModelWeights::format_of(MatrixRole role) const {
  return options_.keep.has(role) ? WeightFormat::plain : options_.format;
}

// Of u4 the matrices of blocks alone are codes.
WeightFormat ModelWeights::format_of_table(std::size_t parameter) const {
  const bool kept =
      options_.format == WeightFormat::u4 ||
      (parameter == parameters_.embedding &&
       format_of(MatrixRole::embedding) == WeightFormat::plain) ||
      (parameter == parameters_.head && format_of(MatrixRole::head) == WeightFormat::plain);
  return kept ? WeightFormat::plain : options_.format;
}

WeightShape ModelWeights::shape(const DecoderParameter& parameter, std::int64_t out,
                                WeightFormat format) const {
  return {parameter.held_in(), out,    parameter.layout,
          options_.dtype,      format, held_group(options_.group, parameter)};
}

BlockLayout::Shapes ModelWeights::block_shapes() const {
  // Of BlockLayout::kMatrices.
  constexpr std::array kRoles = {MatrixRole::qkv, MatrixRole::projection, MatrixRole::hidden,
                                 MatrixRole::output};
  static_assert(kRoles.size() == BlockLayout::kMatrices.size());
  BlockLayout::Shapes shapes;
  for (std::size_t i = 0; i < shapes.size(); ++i) {
    const auto& of = parameters_.all[parameters_.in_block(0, BlockLayout::kMatrices[i])];
    shapes[i] = shape(of, of.held_out(), format_of(kRoles.at(i)));
  }
  return shapes;
}

// Whole groups of columns of both tables, so that no bit of a column depends on the ranks.
void ModelWeights::split_vocabulary(std::int64_t vocabulary) {
  const auto columns_of = [&](std::size_t table) {
    return ops_.weight_cut(shape(parameters_.all[table], vocabulary, format_of_table(table)))
        .columns;
  };
  const std::int64_t columns =
      std::lcm(columns_of(parameters_.embedding), columns_of(parameters_.head));
  for (int rank = 0; rank < ranks_.all.size; ++rank) {
    const TensorSlice::Range groups =
        even_range(div_ceil(vocabulary, columns), rank, ranks_.all.size);
    const std::int64_t begin = std::min(groups.begin * columns, vocabulary);
    const std::int64_t end = std::min((groups.begin + groups.count) * columns, vocabulary);
    tokens_.push_back({begin, end - begin});
  }
}

void ModelWeights::add_table(std::size_t parameter) {
  const WeightShape kept =
      shape(parameters_.all[parameter], tokens_[static_cast<std::size_t>(ranks_.all.rank)].count,
            format_of_table(parameter));
  tables_.push_back(
      {parameter, kept,
       device_.allocate(ops_.weight_bytes(kept), DType::u8, MemoryClass::parameters, "matrices")});
}

StoredWeight ModelWeights::table(std::size_t parameter) const {
  const Table& table = *std::ranges::find(tables_, parameter, &Table::parameter);
  return {table.shape, table.buffer.view()};
}

View ModelWeights::vector(std::size_t parameter) const {
  return parameter == DecoderParameters::kNone ? View() : vectors_[parameter].view();
}

std::vector<LogicalTensor> ModelWeights::tensors(const DecoderShape& decoder) {
  std::vector<LogicalTensor> all;
  for (const DecoderParameter& each : DecoderParameters(DecoderSplit::of(decoder, 0, 1)).all) {
    all.push_back({.name = each.name, .shape = each.shape()});
  }
  return all;
}

void ModelWeights::load(const Source& source) {
  for (const Table& each : tables_) {
    load_matrix(source, each.parameter, tokens_[static_cast<std::size_t>(ranks_.all.rank)].begin,
                {each.shape, each.buffer.view()});
  }
  for (std::int64_t i = 0; i < blocks_; ++i) {
    shards_.load(i, [&](const View& shard) { load_block(source, i, shard); });
  }
  for (std::size_t i = 0; i < vectors_.size(); ++i) {
    if (!vectors_[i].empty()) load_vector(source, i);
  }
  shards_.finish_loading();
  check_blocks();
}

void ModelWeights::load_block(const Source& source, std::int64_t block, const View& shard) {
  for (std::size_t m = 0; m < BlockLayout::kMatrices.size(); ++m) {
    const BlockLayout::Matrix& of = layout_.matrices()[m];
    load_matrix(source, parameters_.in_block(block, BlockLayout::kMatrices[m]), of.first,
                {of.kept, shard.slice(of.kept_at, of.kept_bytes)});
  }
}

// Rounded on the host: a GPU's copies from there change no type.
void ModelWeights::load_vector(const Source& source, std::size_t parameter) {
  const View& to = vectors_[parameter].view();
  std::vector<float> values(static_cast<std::size_t>(to.count()));
  const DecoderParameter& of = parameters_.all[parameter];
  of.part(0, of.held_out())
      .read([&](std::int64_t begin, std::span<float> part) { source.read(parameter, begin, part); },
            0, values);
  std::vector<std::byte> bytes(static_cast<std::size_t>(to.bytes()));
  const View rounded(bytes.data(), to.count(), to.dtype(), nullptr);
  cpu::convert(View::of(std::span(values)), rounded);
  device_.kernels().convert(device_.compute(), rounded, to);
  device_.compute().synchronize();
}

// Columns of the parameter from held column `first` on.
void ModelWeights::load_matrix(const Source& source, std::size_t parameter, std::int64_t first,
                               const StoredWeight& weight) {
  constexpr std::int64_t kBytes = std::int64_t{16} << 20;  // of a piece's elements, about
  const WeightShape& shape = weight.shape;
  if (shape.out == 0) return;
  const DecoderParameter& of = parameters_.all[parameter];
  const TensorPart part = of.part(first, shape.out);
  const std::int64_t rows = shape.file_rows();
  const std::int64_t columns = shape.file_columns();
  const std::int64_t step =
      round_up(std::max<std::int64_t>(1, kBytes / 4 / columns), pack_rows(shape));
  std::vector<float> values;
  for (std::int64_t row = 0; row < rows; row += step) {
    const std::int64_t count = std::min(step, rows - row);
    give_sign_of_life();  // a piece may be rounded to codes, or be in memory
    if (source.read_codes) {
      if (const auto codes = source.read_codes(parameter, part, shape, row, count)) {
        ops_.pack(*codes, weight.values);
        continue;
      }
    }
    values.resize(static_cast<std::size_t>(count * columns));
    part.read([&](std::int64_t begin, std::span<float> to) { source.read(parameter, begin, to); },
              row, values);
    try {
      ops_.pack(shape, row, values, weight.values);
    } catch (const Error& error) {
      fail("tensor \"{}\": {}", of.name, error.what());
    }
  }
}

ModelWeights::Block ModelWeights::block(std::int64_t i) {
  return {*this, i, windows_ ? windows_->use(i) : shards_.use(i, device_.compute())};
}

void ModelWeights::prefetch() {
  if (windows_) return windows_->prefetch();
  shards_.fetch();
}

void ModelWeights::check_blocks() {
  if (!shards_.in_file()) return;
  agree_among(ranks_, device_, "files of blocks", [&] {
    const std::string why = shards_.failure();
    // Names no rank: agree() does, unless all fail alike.
    ZERO_CHECK(why.empty(),
               "{}; weights in that file are lost: start again, with the file on another disk if "
               "this one fails again",
               why);
  });
}

ModelWeights::Block::~Block() {
  if (weights_.windows_) {
    weights_.windows_->release();
  } else {
    weights_.shards_.release(weights_.device_.compute());
  }
}

StoredWeight ModelWeights::Block::matrix(BlockSlot slot) const {
  const auto at = std::ranges::find(BlockLayout::kMatrices, slot) - BlockLayout::kMatrices.begin();
  const BlockLayout::Matrix& of = weights_.layout_.matrices()[static_cast<std::size_t>(at)];
  return {of.shape, matrices_.slice(of.at, of.bytes)};
}

View ModelWeights::Block::vector(BlockSlot slot) const {
  return weights_.vector(weights_.parameters_.in_block(i_, slot));
}

ModelWeights::Options weight_options(const InferenceOptions& options) {
  return {.dtype = options.dtype,
          .format = options.weights,
          .group = options.weight_group,
          .keep = options.keep,
          .windows = options.windows,
          .file = options.block_file};
}

}  // namespace zero
