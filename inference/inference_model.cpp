// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#include "inference/inference_model.h"

#include <algorithm>
#include <utility>

#include "base/checked_math.h"
#include "base/error.h"
#include "checkpoint/hf/config.h"
#include "inference/weight_files.h"

namespace zero {
namespace {

InferenceOptions checked(InferenceOptions options, const DecoderShape& decoder) {
  const auto check = [](std::string_view name, std::int64_t value, std::int64_t most,
                        std::int64_t least = 1) {
    ZERO_CHECK(value >= least && value <= most, "inference: {} is {}, expected {} to {}", name,
               value, least, most);
  };
  constexpr std::int64_t kMostRequests = 1 << 16;
  if (options.request_tokens == 0) options.request_tokens = decoder.context;
  if (options.logit_rows == 0) options.logit_rows = options.requests;
  check("requests", options.requests, kMostRequests);
  check("request_tokens", options.request_tokens, decoder.context);
  check("block_tokens", options.block_tokens, decoder.context, 0);
  ZERO_CHECK(options.block_tokens % kCacheGroup == 0,
             "inference: block_tokens is {}, expected a multiple of {}", options.block_tokens,
             kCacheGroup);
  check("cache_tokens", options.cache_tokens, std::int64_t{1} << 40, 0);
  check("rows", options.rows, InferenceOptions::kMostRows);
  check("logit_rows", options.logit_rows, kMostRequests);
  ZERO_CHECK(
      options.dtype == DType::fp32 || options.dtype == DType::bf16 || options.dtype == DType::fp16,
      "inference: dtype is {}, expected fp32, bf16 or fp16", name_of(options.dtype));
  return options;
}

KeyValueCache::Size cache_size(const DecoderShape& decoder, const InferenceOptions& options) {
  const std::int64_t block = round_up(
      options.block_tokens == 0 ? options.request_tokens : options.block_tokens, kCacheGroup);
  return {.layers = decoder.layers,
          .slots = options.requests,
          .tokens = options.request_tokens,
          .blocks = div_ceil(options.cache_tokens, block),
          .shape = {.kv_heads = decoder.kv_heads,
                    .head_width = decoder.head_width,
                    .block_tokens = block,
                    .dtype = options.dtype}};
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
  const std::int64_t rows = ops_->padded_rows(options_.rows);
  const std::int64_t last = ops_->padded_rows(options_.logit_rows);
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
             .last_x = take(last * d.width, options_.dtype),
             .last_branch = take(last * d.width, options_.dtype),
             .logits = device_.allocate_host(last * d.vocabulary, DType::fp32,
                                             MemoryClass::activations, "activations")};
  logits_ = DeviceTwin(device_, last * d.vocabulary, DType::fp32, MemoryClass::activations,
                       "activations");
  for (const BlockSlot slot : {BlockSlot::qkv_weight, BlockSlot::projection_weight,
                               BlockSlot::hidden_weight, BlockSlot::output_weight}) {
    ops_->prepare(weights_.matrix(0, slot).shape, options_.rows);
  }
  ops_->prepare(weights_.head().shape, options_.logit_rows);
  ops_->prepare({.cache = cache_.shape(),
                 .heads = d.heads,
                 .rows = options_.rows,
                 .logit_rows = options_.logit_rows,
                 .sequences = std::min(options_.requests, options_.rows),
                 .tokens = options_.request_tokens});
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
  std::int64_t blocks = 0;
  std::vector<bool> seen(static_cast<std::size_t>(cache_.slots()), false);
  for (const Part& part : parts) {
    const auto count = static_cast<std::int64_t>(part.tokens.size());
    ZERO_CHECK(cache_.is_open(part.slot) && !seen[static_cast<std::size_t>(part.slot)],
               "forward: slot {}, expected each that the cache opened of 0 to {} at most once",
               part.slot, cache_.slots() - 1);
    seen[static_cast<std::size_t>(part.slot)] = true;
    const std::int64_t length = cache_.length(part.slot);
    ZERO_CHECK(count >= 1 && length + count <= cache_.tokens(),
               "forward: {} tokens behind {} of slot {}, expected at least one and at most {} in "
               "all",
               count, length, part.slot, cache_.tokens());
    for (const std::uint32_t token : part.tokens) {
      ZERO_CHECK(token < decoder_.vocabulary, "forward: token {}, expected 0 to {}", token,
                 decoder_.vocabulary - 1);
    }
    ZERO_CHECK(part.logits >= 0 && part.logits <= count,
               "forward: logits of {} tokens of {}, expected 0 to all of them", part.logits, count);
    rows += count;
    logits += part.logits;
    blocks += cache_.blocks_needed(part.slot, count);
  }
  ZERO_CHECK(rows <= options_.rows, "forward: {} tokens in a pass, expected at most {}", rows,
             options_.rows);
  ZERO_CHECK(logits <= options_.logit_rows, "forward: logits of {} tokens, expected at most {}",
             logits, options_.logit_rows);
  ZERO_CHECK(blocks <= cache_.available_blocks(),
             "forward: {} blocks of the cache, expected at most the {} that are left of {}", blocks,
             cache_.available_blocks(), cache_.total_blocks());
}

void InferenceModel::append(std::span<const Part> parts) {
  pass_ = {};
  for (const Part& part : parts) {
    const auto count = static_cast<std::int64_t>(part.tokens.size());
    const std::int64_t position = cache_.length(part.slot);
    cache_.append(part.slot, part.tokens);
    pass_.sequences.push_back({pass_.count(), count, position, cache_.blocks(part.slot)});
    for (std::int64_t i = 0; i < count; ++i) {
      if (count - i <= part.logits) {
        pass_.logit_rows.push_back(static_cast<std::int32_t>(pass_.count()));
      }
      pass_.tokens.push_back(static_cast<std::int32_t>(part.tokens[static_cast<std::size_t>(i)]));
      pass_.positions.push_back(static_cast<std::int32_t>(position + i));
    }
  }
}

void InferenceModel::forward(std::span<const Part> parts) {
  check(parts);
  if (parts.empty()) return;
  append(parts);
  try {
    run();
  } catch (...) {
    cache_.forget();
    throw;
  }
}

void InferenceModel::run() {
  ops_->begin(pass_);
  embed();
  for (std::int64_t i = 0; i < decoder_.layers; ++i) forward_block(i);
  forward_head();
  device_.compute().synchronize();
}

std::span<const float> InferenceModel::logits(std::int64_t i) const {
  ZERO_CHECK(i >= 0 && i < std::ssize(pass_.logit_rows),
             "logits of row {}, expected one of the last pass's {}", i, pass_.logit_rows.size());
  return memory_.logits.slice(i * decoder_.vocabulary, decoder_.vocabulary).as<const float>();
}

void InferenceModel::embed() {
  const DecoderShape& d = decoder_;
  const View x = rows_of(memory_.x, d.width);
  ops_->embed(weights_.embedding().shape, weights_.embedding().values, x);
  if (!weights_.positions().empty()) {
    const View positions = rows_of(memory_.branch, d.width);
    ops_->gather(RowList::positions, weights_.positions(), d.width, positions);
    row_ops_->add(x, positions, x);
  }
  if (d.rotary) {
    const std::int64_t half = d.head_width / 2;
    ops_->gather(RowList::positions, cosine_table_.view(), half, rows_of(memory_.cosines, half));
    ops_->gather(RowList::positions, sine_table_.view(), half, rows_of(memory_.sines, half));
  }
}

void InferenceModel::norm(const View& weight, const View& bias, bool add_branch) {
  const View x = rows_of(memory_.x, decoder_.width);
  const std::int64_t figures = decoder_.norm == NormKind::rms ? 1 : 2;
  row_ops_->norm_forward({pass_.count(), decoder_.width, options_.dtype},
                         {.x = x,
                          .delta = add_branch ? rows_of(memory_.branch, decoder_.width) : View(),
                          .sum = add_branch ? x : View(),
                          .weight = weight,
                          .bias = bias,
                          .y = rows_of(memory_.normed, decoder_.width),
                          .statistics = memory_.statistics.slice(0, figures * pass_.count()),
                          .epsilon = decoder_.epsilon});
}

void InferenceModel::linear(const ModelWeights::Matrix& matrix, const View& bias, const Buffer& x,
                            const Buffer& y) {
  ops_->linear(matrix.shape, pass_.count(), x.view(), matrix.values, bias, y.view());
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
    row_ops_->swiglu_forward({pass_.count(), d.intermediate, options_.dtype},
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
                      .sequence = pass_.count(),
                      .heads = d.heads + d.kv_heads,
                      .head_width = d.head_width,
                      .row_width = d.qkv_width(),
                      .dtype = options_.dtype},
                     Turn::forward, qkv, rows_of(memory_.cosines, half),
                     rows_of(memory_.sines, half));
  }
  const CachedAttention operands{.cache = cache_.shape(),
                                 .heads = d.heads,
                                 .layer = cache_.layer(i),
                                 .qkv = qkv,
                                 .out = rows_of(memory_.attended, d.attended_width())};
  ops_->append(operands);
  ops_->attend(operands);
}

void InferenceModel::forward_head() {
  const std::int64_t width = decoder_.width;
  const std::int64_t count = std::ssize(pass_.logit_rows);
  if (count == 0) return;
  for (const auto& [from, to] :
       {std::pair(&memory_.x, &memory_.last_x), std::pair(&memory_.branch, &memory_.last_branch)}) {
    ops_->gather(RowList::logit_rows, rows_of(*from, width), width, to->slice(0, count * width));
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
               logits_.of(memory_.logits.view()));
  logits_.download(device_.compute(), memory_.logits.slice(0, count * decoder_.vocabulary));
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
