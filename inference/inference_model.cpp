// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#include "inference/inference_model.h"

#include <algorithm>
#include <utility>

#include "base/error.h"
#include "checkpoint/hf/config.h"
#include "inference/weight_files.h"

namespace zero {
namespace {

InferenceOptions checked(InferenceOptions options, const DecoderShape& decoder) {
  const auto check = [](std::string_view name, std::int64_t value, std::int64_t most) {
    ZERO_CHECK(value >= 1 && value <= most, "inference: {} is {}, expected 1 to {}", name, value,
               most);
  };
  constexpr std::int64_t kMostRequests = 1 << 16;
  if (options.request_tokens == 0) options.request_tokens = decoder.context;
  if (options.logit_rows == 0) options.logit_rows = options.requests;
  check("requests", options.requests, kMostRequests);
  check("request_tokens", options.request_tokens, decoder.context);
  check("rows", options.rows, InferenceOptions::kMostRows);
  check("logit_rows", options.logit_rows, kMostRequests);
  ZERO_CHECK(
      options.dtype == DType::fp32 || options.dtype == DType::bf16 || options.dtype == DType::fp16,
      "inference: dtype is {}, expected fp32, bf16 or fp16", name_of(options.dtype));
  return options;
}

KeyValueCache::Size cache_size(const DecoderShape& decoder, const InferenceOptions& options) {
  return {
      .layers = decoder.layers,
      .slots = options.requests,
      .tokens = options.request_tokens,
      .shape = {
          .kv_heads = decoder.kv_heads, .head_width = decoder.head_width, .dtype = options.dtype}};
}

}  // namespace

InferenceModel::InferenceModel(Device& device, const ModelConfig& config,
                               const InferenceOptions& options)
    : device_(device),
      decoder_(decoder_shape(config)),
      options_(checked(options, decoder_)),
      ops_(make_inference_ops(device)),
      row_ops_(make_ops(device)),
      weights_(device, *ops_, decoder_, options_.dtype, options_.weights),
      cache_(device, cache_size(decoder_, options_)) {
  allocate();
}

void InferenceModel::allocate() {
  const DecoderShape& d = decoder_;
  const std::int64_t rows = InferenceOps::padded_rows(options_.rows);
  const std::int64_t last = InferenceOps::padded_rows(options_.logit_rows);
  const auto take = [&](std::int64_t count, DType dtype) {
    return device_.allocate(count, dtype, MemoryClass::activations, "activations");
  };
  const auto take_rows = [&](std::int64_t width) { return take(rows * width, options_.dtype); };
  memory_ = {.x = take_rows(d.width),
             .normed = take(std::max(rows, last) * d.width, options_.dtype),
             .branch = take_rows(d.width),
             .qkv = take_rows(d.qkv_width()),
             .attended = take_rows(d.attended_width()),
             .hidden = take_rows(d.hidden_width()),
             .activated = take_rows(d.intermediate),
             .statistics = take(2 * std::max(rows, last), DType::fp32),
             .cosines = take(d.rotary ? rows * (d.head_width / 2) : 0, DType::fp32),
             .sines = take(d.rotary ? rows * (d.head_width / 2) : 0, DType::fp32),
             .tokens = take(rows, DType::i32),
             .last_x = take(last * d.width, options_.dtype),
             .last_branch = take(last * d.width, options_.dtype),
             .logits = take(last * d.vocabulary, DType::fp32)};
  for (const BlockSlot slot : {BlockSlot::qkv_weight, BlockSlot::projection_weight,
                               BlockSlot::hidden_weight, BlockSlot::output_weight}) {
    ops_->prepare(weights_.matrix(0, slot).shape, options_.rows);
  }
  ops_->prepare(weights_.head().shape, options_.logit_rows);
  ops_->prepare(cache_.shape());
  ops_->allocate_scratch();
  if (d.rotary) {
    const std::int64_t table = options_.request_tokens * (d.head_width / 2);
    cosine_table_ = take(table, DType::fp32);
    sine_table_ = take(table, DType::fp32);
    row_ops_->rotary_table({.batch = 1,
                            .sequence = options_.request_tokens,
                            .heads = 1,
                            .head_width = d.head_width,
                            .row_width = d.head_width},
                           *d.rotary, cosine_table_.view(), sine_table_.view());
  }
  // Products read whole groups of rows: those that no token fills must hold numbers.
  for (const Buffer* each : {&memory_.normed, &memory_.attended, &memory_.activated}) {
    device_.kernels().zero(device_.compute(), each->view());
  }
}

void InferenceModel::check(std::span<const Part> parts) const {
  std::int64_t rows = 0;
  std::int64_t logits = 0;
  std::vector<bool> seen(static_cast<std::size_t>(cache_.slots()), false);
  for (const Part& part : parts) {
    const auto count = static_cast<std::int64_t>(part.tokens.size());
    ZERO_CHECK(
        part.slot >= 0 && part.slot < cache_.slots() && !seen[static_cast<std::size_t>(part.slot)],
        "forward: slot {}, expected each of 0 to {} at most once", part.slot, cache_.slots() - 1);
    seen[static_cast<std::size_t>(part.slot)] = true;
    const std::int64_t length = cache_.length(part.slot) + count;
    ZERO_CHECK(count >= 1 && length <= cache_.tokens(),
               "forward: {} tokens behind {} of slot {}, expected at least one and at most {} in "
               "all",
               count, cache_.length(part.slot), part.slot, cache_.tokens());
    for (const std::uint32_t token : part.tokens) {
      ZERO_CHECK(token < decoder_.vocabulary, "forward: token {}, expected 0 to {}", token,
                 decoder_.vocabulary - 1);
    }
    rows += count;
    ZERO_CHECK(part.logits >= 0 && part.logits <= count,
               "forward: logits of {} tokens of {}, expected 0 to all of them", part.logits, count);
    logits += part.logits;
  }
  ZERO_CHECK(rows <= options_.rows, "forward: {} tokens in a pass, expected at most {}", rows,
             options_.rows);
  ZERO_CHECK(logits <= options_.logit_rows, "forward: logits of {} tokens, expected at most {}",
             logits, options_.logit_rows);
}

void InferenceModel::set_rows(std::span<const Part> parts) {
  rows_ = 0;
  sequences_.clear();
  positions_.clear();
  logit_rows_.clear();
  const auto tokens = memory_.tokens.view().as<std::int32_t>();
  for (const Part& part : parts) {
    const auto count = static_cast<std::int64_t>(part.tokens.size());
    const std::int64_t position = cache_.length(part.slot);
    cache_.grow(part.slot, count);
    sequences_.push_back({rows_, count, position, cache_.blocks(part.slot)});
    for (std::int64_t i = 0; i < count; ++i) {
      tokens[static_cast<std::size_t>(rows_)] =
          static_cast<std::int32_t>(part.tokens[static_cast<std::size_t>(i)]);
      positions_.push_back(position + i);
      if (count - i <= part.logits) logit_rows_.push_back(rows_);
      ++rows_;
    }
  }
}

void InferenceModel::forward(std::span<const Part> parts) {
  check(parts);
  if (parts.empty()) return;
  set_rows(parts);
  embed();
  for (std::int64_t i = 0; i < decoder_.layers; ++i) forward_block(i);
  forward_head();
  device_.compute().synchronize();
}

std::span<const float> InferenceModel::logits(std::int64_t i) const {
  ZERO_CHECK(i >= 0 && i < static_cast<std::int64_t>(logit_rows_.size()),
             "logits of row {}, expected one of the last pass's {}", i, logit_rows_.size());
  return memory_.logits.slice(i * decoder_.vocabulary, decoder_.vocabulary).as<const float>();
}

void InferenceModel::embed() {
  const DecoderShape& d = decoder_;
  Stream& stream = device_.compute();
  Kernels& kernels = device_.kernels();
  ops_->embed(weights_.embedding().shape, weights_.embedding().values,
              memory_.tokens.slice(0, rows_), rows_of(memory_.x, d.width));
  for (std::int64_t row = 0; row < rows_; ++row) {
    const std::int64_t position = positions_[static_cast<std::size_t>(row)];
    if (!weights_.positions().empty()) {
      const View x = memory_.x.slice(row * d.width, d.width);
      row_ops_->add(x, weights_.positions().slice(position * d.width, d.width), x);
    }
    if (d.rotary) {
      const std::int64_t half = d.head_width / 2;
      kernels.convert(stream, cosine_table_.slice(position * half, half),
                      memory_.cosines.slice(row * half, half));
      kernels.convert(stream, sine_table_.slice(position * half, half),
                      memory_.sines.slice(row * half, half));
    }
  }
}

void InferenceModel::norm(const View& weight, const View& bias, bool add_branch) {
  const View x = rows_of(memory_.x, decoder_.width);
  const std::int64_t figures = decoder_.norm == NormKind::rms ? 1 : 2;
  row_ops_->norm_forward({rows_, decoder_.width, options_.dtype},
                         {.x = x,
                          .delta = add_branch ? rows_of(memory_.branch, decoder_.width) : View(),
                          .sum = add_branch ? x : View(),
                          .weight = weight,
                          .bias = bias,
                          .y = rows_of(memory_.normed, decoder_.width),
                          .statistics = memory_.statistics.slice(0, figures * rows_),
                          .epsilon = decoder_.epsilon});
}

void InferenceModel::linear(const ModelWeights::Matrix& matrix, const View& bias, const Buffer& x,
                            const Buffer& y) {
  ops_->linear(matrix.shape, rows_, x.view(), matrix.values, bias, y.view());
}

void InferenceModel::forward_block(std::int64_t i) {
  const DecoderShape& d = decoder_;
  const auto matrix = [&](BlockSlot slot) { return weights_.matrix(i, slot); };
  const auto vector = [&](BlockSlot slot) { return weights_.vector(i, slot); };
  norm(vector(BlockSlot::norm1_weight), vector(BlockSlot::norm1_bias), i > 0);
  linear(matrix(BlockSlot::qkv_weight), vector(BlockSlot::qkv_bias), memory_.normed, memory_.qkv);
  attention(i);
  linear(matrix(BlockSlot::projection_weight), vector(BlockSlot::projection_bias), memory_.attended,
         memory_.branch);
  norm(vector(BlockSlot::norm2_weight), vector(BlockSlot::norm2_bias), true);
  linear(matrix(BlockSlot::hidden_weight), vector(BlockSlot::hidden_bias), memory_.normed,
         memory_.hidden);
  const View activated = rows_of(memory_.activated, d.intermediate);
  if (d.activation == DecoderShape::Activation::swiglu) {
    row_ops_->swiglu_forward({rows_, d.intermediate, options_.dtype},
                             rows_of(memory_.hidden, 2 * d.intermediate), activated);
  } else {
    row_ops_->gelu_forward(rows_of(memory_.hidden, d.intermediate), activated);
  }
  linear(matrix(BlockSlot::output_weight), vector(BlockSlot::output_bias), memory_.activated,
         memory_.branch);
}

void InferenceModel::attention(std::int64_t i) {
  const DecoderShape& d = decoder_;
  const View qkv = rows_of(memory_.qkv, d.qkv_width());
  if (d.rotary) {
    const std::int64_t half = d.head_width / 2;
    row_ops_->rotary({.batch = 1,
                      .sequence = rows_,
                      .heads = d.heads + d.kv_heads,
                      .head_width = d.head_width,
                      .row_width = d.qkv_width(),
                      .dtype = options_.dtype},
                     Turn::forward, qkv, rows_of(memory_.cosines, half),
                     rows_of(memory_.sines, half));
  }
  const CachedAttention operands{.cache = cache_.shape(),
                                 .heads = d.heads,
                                 .sequences = sequences_,
                                 .layer = cache_.layer(i),
                                 .qkv = qkv,
                                 .out = rows_of(memory_.attended, d.attended_width())};
  ops_->append(operands);
  ops_->attend(operands);
}

void InferenceModel::forward_head() {
  const std::int64_t width = decoder_.width;
  const auto count = static_cast<std::int64_t>(logit_rows_.size());
  if (count == 0) return;
  for (std::int64_t i = 0; i < count; ++i) {
    const std::int64_t row = logit_rows_[static_cast<std::size_t>(i)];
    for (const auto& [from, to] : {std::pair(&memory_.x, &memory_.last_x),
                                   std::pair(&memory_.branch, &memory_.last_branch)}) {
      device_.kernels().convert(device_.compute(), from->slice(row * width, width),
                                to->slice(i * width, width));
    }
  }
  const View x = memory_.last_x.slice(0, count * width);
  const View normed = memory_.normed.slice(0, count * width);
  const std::int64_t figures = decoder_.norm == NormKind::rms ? 1 : 2;
  row_ops_->norm_forward({count, width, options_.dtype},
                         {.x = x,
                          .delta = memory_.last_branch.slice(0, count * width),
                          .sum = x,
                          .weight = weights_.norm_weight(),
                          .bias = weights_.norm_bias(),
                          .y = normed,
                          .statistics = memory_.statistics.slice(0, figures * count),
                          .epsilon = decoder_.epsilon});
  ops_->linear(weights_.head().shape, count, memory_.normed.view(), weights_.head().values, View(),
               memory_.logits.view());
}

std::unique_ptr<InferenceModel> open_inference_model(Device& device, const std::string& folder,
                                                     const InferenceOptions& options) {
  const ModelConfig config = read_hf_config(folder);
  const WeightFiles files(folder, config);
  auto model = std::make_unique<InferenceModel>(device, config, options);
  model->load([&](std::size_t tensor, std::int64_t begin, std::span<float> values) {
    files.read(tensor, begin, values);
  });
  return model;
}

}  // namespace zero
