// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#include "model/gpt2.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <string>

#include "base/error.h"
#include "model/gpt2_impl.h"

namespace zero {
namespace {

std::vector<ParameterSpec> block_parameters(const Gpt2Config& config) {
  const std::int64_t c = config.width;
  const Init normal = init::normal(0.02F);
  // What adds to the residual stream 2 L times starts smaller (Radford et al. 2019, section 2.3).
  const Init residual = init::normal(0.02F / std::sqrt(2.0F * static_cast<float>(config.layers)));
  return {{"ln_1.weight", {c}, init::ones()},          {"ln_1.bias", {c}},
          {"attn.c_attn.weight", {c, 3 * c}, normal},  {"attn.c_attn.bias", {3 * c}},
          {"attn.c_proj.weight", {c, c}, residual},    {"attn.c_proj.bias", {c}},
          {"ln_2.weight", {c}, init::ones()},          {"ln_2.bias", {c}},
          {"mlp.c_fc.weight", {c, 4 * c}, normal},     {"mlp.c_fc.bias", {4 * c}},
          {"mlp.c_proj.weight", {4 * c, c}, residual}, {"mlp.c_proj.bias", {c}}};
}

std::vector<ParameterSpec> embedding_parameters(const Gpt2Config& config) {
  ParameterSpec tokens{"wte.weight", {config.vocabulary, config.width}, init::normal(0.02F)};
  ParameterSpec positions{"wpe.weight", {config.context, config.width}, init::normal(0.02F)};
  tokens.full_name = tokens.name;
  positions.full_name = positions.name;
  return {tokens, positions};
}

void check_tokens(std::string_view what, View tokens, std::int64_t rows, std::int64_t vocabulary) {
  ZERO_CHECK(tokens.count() == rows, "{}: {} tokens, expected batch x sequence = {}", what,
             tokens.count(), rows);
  const auto ids = tokens.as<std::int32_t>();
  const auto bad = std::find_if(ids.begin(), ids.end(),
                                [&](std::int32_t id) { return id < 0 || id >= vocabulary; });
  ZERO_CHECK(bad == ids.end(), "{}: token {} at position {}, expected 0 to {} (the vocabulary)",
             what, *bad, bad - ids.begin(), vocabulary - 1);
}

}  // namespace

Gpt2::Impl::Impl(Engine& engine, const Gpt2Config& model, BatchShape batch)
    : config(model),
      shape(batch),
      engine_(engine),
      dtype_(engine.options().compute),
      rows_(batch.batch * batch.sequence),
      ops_(make_ops(engine.device())),
      memory_(model, batch, dtype_) {
  embedding_ = engine.add_unit("embedding", embedding_parameters(config));
  for (std::int64_t i = 0; i < config.layers; ++i) {
    blocks_.push_back(engine.add_unit(fmt::format("h.{}", i), block_parameters(config)));
  }
  norm_ =
      engine.add_unit("ln_f", {{"weight", {config.width}, init::ones()}, {"bias", {config.width}}});
  prepare();
}

void Gpt2::Impl::prepare() {
  const std::int64_t c = config.width;
  for (const LinearShape& each :
       {linear(c, 3 * c), linear(c, c), linear(c, 4 * c), linear(4 * c, c)}) {
    ops_->prepare(each, Ops::LinearUse::training);
  }
  const std::int64_t chunk = std::min(rows_, Gpt2Memory::kChunkRows);
  ops_->prepare(head_linear(chunk), Ops::LinearUse::training);
  if (rows_ % chunk != 0) ops_->prepare(head_linear(rows_ % chunk), Ops::LinearUse::training);
  ops_->prepare(head_linear(1), Ops::LinearUse::forward_fp32);
  ops_->prepare(attention());
  ops_->prepare(matrix(4 * c));
}

void Gpt2::Impl::allocate() {
  memory_.allocate(engine_.device());
  ops_->allocate_scratch();
}

std::vector<Use> Gpt2::Impl::order() const {
  std::vector<Use> uses{{embedding_, Phase::forward}};
  for (const UnitId unit : blocks_) uses.push_back({unit, Phase::forward});
  uses.push_back({norm_, Phase::forward});
  uses.push_back({embedding_, Phase::both});
  uses.push_back({norm_, Phase::backward});
  for (auto unit = blocks_.rbegin(); unit != blocks_.rend(); ++unit) {
    uses.push_back({*unit, Phase::backward});
  }
  uses.push_back({embedding_, Phase::backward, false});
  return uses;
}

void Gpt2::Impl::forward(View inputs) {
  {
    const ParameterLease unit = engine_.forward(embedding_);
    ops_->embedding_forward(embedding(), inputs, unit.at(kTokens), unit.at(kPositions),
                            memory_.x(0));
  }
  for (std::int64_t i = 0; i < config.layers; ++i) forward_block(i);
  const ParameterLease unit = engine_.forward(norm_);
  const std::int64_t last = config.layers;
  ops_->layer_norm_forward(matrix(config.width), {.x = memory_.middle(last - 1),
                                                  .delta = memory_.branch(),
                                                  .sum = memory_.x(last),
                                                  .gamma = unit.at(kWeight),
                                                  .beta = unit.at(kBias),
                                                  .y = memory_.normed(),
                                                  .statistics = memory_.statistics(last)});
}

void Gpt2::Impl::forward_block(std::int64_t i) {
  const ParameterLease unit = engine_.forward(block(i));
  const Gpt2Memory& m = memory_;
  const std::int64_t c = config.width;
  // x(i) is the layer below's middle plus what its MLP left in branch; the first is ready.
  ops_->layer_norm_forward(matrix(c), {.x = i == 0 ? m.x(0) : m.middle(i - 1),
                                       .delta = i == 0 ? View() : m.branch(),
                                       .sum = i == 0 ? View() : m.x(i),
                                       .gamma = unit.at(kNorm1Weight),
                                       .beta = unit.at(kNorm1Bias),
                                       .y = m.normed(),
                                       .statistics = m.statistics(i)});
  ops_->linear_forward(linear(c, 3 * c), m.normed(), unit.at(kAttentionWeight),
                       unit.at(kAttentionBias), m.qkv(i));
  ops_->attention_forward(attention(), m.qkv(i), m.attended(i), m.log_sums(i));
  ops_->linear_forward(linear(c, c), m.attended(i), unit.at(kProjectionWeight),
                       unit.at(kProjectionBias), m.branch());
  ops_->layer_norm_forward(matrix(c), {.x = m.x(i),
                                       .delta = m.branch(),
                                       .sum = m.middle(i),
                                       .gamma = unit.at(kNorm2Weight),
                                       .beta = unit.at(kNorm2Bias),
                                       .y = m.normed(),
                                       .statistics = m.middle_statistics(i)});
  ops_->linear_forward(linear(c, 4 * c), m.normed(), unit.at(kHiddenWeight), unit.at(kHiddenBias),
                       m.hidden(i));
  ops_->gelu_forward(m.hidden(i), m.activated());
  ops_->linear_forward(linear(4 * c, c), m.activated(), unit.at(kOutputWeight),
                       unit.at(kOutputBias), m.branch());
}

void Gpt2::Impl::head(View targets, float gradient_scale, View loss_sum) {
  const GradientLease unit = engine_.backward(embedding_);
  const View weight = unit.parameter(kTokens);
  const View gradient = unit.gradient(kTokens);
  // The embedding's backward adds to both tables; this use writes only one of them.
  if (!unit.accumulates()) {
    Device& device = engine_.device();
    device.kernels().zero(device.compute(), unit.gradient(kPositions));
  }
  for (std::int64_t begin = 0; begin < rows_; begin += Gpt2Memory::kChunkRows) {
    const std::int64_t rows = std::min(Gpt2Memory::kChunkRows, rows_ - begin);
    const std::int64_t c = config.width;
    const LinearShape linear_shape = head_linear(rows);
    const MatrixShape logits_shape{rows, config.vocabulary, dtype_};
    const View logits = memory_.logits(rows);
    const View normed = memory_.normed().slice(begin * c, rows * c);
    const bool first = begin == 0 && !unit.accumulates();
    ops_->linear_forward(linear_shape, normed, weight, View(), logits);
    ops_->cross_entropy_backward(logits_shape, logits, targets.slice(begin, rows), gradient_scale,
                                 memory_.losses().slice(begin, rows));
    ops_->linear_backward_weight(linear_shape, normed, logits, gradient,
                                 first ? Write::overwrite : Write::add);
    ops_->linear_backward_input(linear_shape, logits, weight,
                                memory_.branch().slice(begin * c, rows * c));
  }
  ops_->sum(memory_.losses(), loss_sum);
}

void Gpt2::Impl::train(View inputs, View targets, float gradient_scale, View loss_sum) {
  check_tokens("inputs", inputs, rows_, config.vocabulary);
  check_tokens("targets", targets, rows_, config.vocabulary);
  forward(inputs);
  head(targets, gradient_scale, loss_sum);
  backward(inputs);
}

void Gpt2::Impl::evaluate(View inputs, View targets, View loss_sum) {
  check_tokens("inputs", inputs, rows_, config.vocabulary);
  check_tokens("targets", targets, rows_, config.vocabulary);
  forward(inputs);
  const ParameterLease unit = engine_.forward(embedding_);
  for (std::int64_t begin = 0; begin < rows_; begin += Gpt2Memory::kChunkRows) {
    const std::int64_t rows = std::min(Gpt2Memory::kChunkRows, rows_ - begin);
    const View normed = memory_.normed().slice(begin * config.width, rows * config.width);
    ops_->linear_forward(head_linear(rows), normed, unit.at(kTokens), View(), memory_.logits(rows));
    ops_->cross_entropy_forward({rows, config.vocabulary, dtype_}, memory_.logits(rows),
                                targets.slice(begin, rows), memory_.losses().slice(begin, rows));
  }
  ops_->sum(memory_.losses(), loss_sum);
}

void Gpt2::Impl::next_logits(View inputs, std::int64_t position, View logits) {
  check_tokens("inputs", inputs, rows_, config.vocabulary);
  ZERO_CHECK(position >= 0 && position < shape.sequence,
             "next_logits: position {}, expected 0 to {} (the sequence)", position,
             shape.sequence - 1);
  forward(inputs);
  const ParameterLease unit = engine_.forward(embedding_);
  const View row = memory_.normed().slice(position * config.width, config.width);
  ops_->linear_forward(head_linear(1), row, unit.at(kTokens), View(), logits);
}

Gpt2::Gpt2(Engine& engine, const Gpt2Config& config, BatchShape shape) {
  config.validate();
  ZERO_CHECK(shape.batch >= 1, "the micro-batch has {} rows, expected at least 1", shape.batch);
  ZERO_CHECK(shape.sequence >= 1 && shape.sequence <= config.context,
             "the sequence length is {}, expected 1 to model.context = {}", shape.sequence,
             config.context);
  impl_ = std::make_unique<Impl>(engine, config, shape);
}

Gpt2::~Gpt2() = default;

std::vector<Use> Gpt2::order() const { return impl_->order(); }
void Gpt2::allocate() { impl_->allocate(); }
std::int64_t Gpt2::activation_bytes() const { return impl_->activation_bytes(); }

void Gpt2::train(View inputs, View targets, float gradient_scale, View loss_sum) {
  impl_->train(inputs, targets, gradient_scale, loss_sum);
}

void Gpt2::evaluate(View inputs, View targets, View loss_sum) {
  impl_->evaluate(inputs, targets, loss_sum);
}

void Gpt2::next_logits(View inputs, std::int64_t position, View logits) {
  impl_->next_logits(inputs, position, logits);
}

const Gpt2Config& Gpt2::config() const { return impl_->config; }
BatchShape Gpt2::shape() const { return impl_->shape; }

}  // namespace zero
