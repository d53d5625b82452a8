// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#include "model/gpt2_impl.h"

namespace zero {

void Gpt2::Impl::backward(View inputs) {
  Device& device = engine_.device();
  {
    const GradientLease unit = engine_.backward(norm_);
    device.kernels().zero(device.compute(), memory_.dx());
    ops_->layer_norm_backward(matrix(config.width),
                              {.x = memory_.x(config.layers),
                               .statistics = memory_.statistics(config.layers),
                               .gamma = unit.parameter(kWeight),
                               .dy = memory_.branch(),
                               .dx = memory_.dx(),
                               .dgamma = unit.gradient(kWeight),
                               .dbeta = unit.gradient(kBias)});
  }
  for (std::int64_t i = config.layers - 1; i >= 0; --i) backward_block(i);
  const GradientLease unit = engine_.backward(embedding_);
  if (!unit.accumulates()) {
    device.kernels().zero(device.compute(), unit.gradient(kTokens));
    device.kernels().zero(device.compute(), unit.gradient(kPositions));
  }
  ops_->embedding_backward(embedding(), inputs, memory_.dx(), unit.gradient(kTokens),
                           unit.gradient(kPositions));
}

void Gpt2::Impl::backward_block(std::int64_t i) {
  const GradientLease unit = engine_.backward(block(i));
  backward_mlp(i, unit);
  backward_attention(i, unit);
}

// dx: the gradient of the block's output becomes that of its middle.
void Gpt2::Impl::backward_mlp(std::int64_t i, const GradientLease& unit) {
  const Gpt2Memory& m = memory_;
  const std::int64_t c = config.width;
  ops_->linear_backward_input(linear(4 * c, c), m.dx(), unit.parameter(kOutputWeight), m.dhidden());
  ops_->gelu_backward(matrix(4 * c), m.hidden(i), m.dhidden(), m.activated(),
                      unit.gradient(kHiddenBias));
  ops_->linear_backward_weight(linear(4 * c, c), m.activated(), m.dx(),
                               unit.gradient(kOutputWeight), Write::overwrite);
  ops_->column_sums(matrix(c), m.dx(), unit.gradient(kOutputBias));
  ops_->layer_norm_apply(matrix(c), {.x = m.middle(i),
                                     .gamma = unit.parameter(kNorm2Weight),
                                     .beta = unit.parameter(kNorm2Bias),
                                     .y = m.normed(),
                                     .statistics = m.middle_statistics(i)});
  ops_->linear_backward_weight(linear(c, 4 * c), m.normed(), m.dhidden(),
                               unit.gradient(kHiddenWeight), Write::overwrite);
  ops_->linear_backward_input(linear(c, 4 * c), m.dhidden(), unit.parameter(kHiddenWeight),
                              m.branch());
  ops_->layer_norm_backward(matrix(c), {.x = m.middle(i),
                                        .statistics = m.middle_statistics(i),
                                        .gamma = unit.parameter(kNorm2Weight),
                                        .dy = m.branch(),
                                        .dx = m.dx(),
                                        .dgamma = unit.gradient(kNorm2Weight),
                                        .dbeta = unit.gradient(kNorm2Bias)});
}

// dx: the gradient of the block's middle becomes that of its input.
void Gpt2::Impl::backward_attention(std::int64_t i, const GradientLease& unit) {
  const Gpt2Memory& m = memory_;
  const std::int64_t c = config.width;
  ops_->linear_backward_weight(linear(c, c), m.attended(i), m.dx(),
                               unit.gradient(kProjectionWeight), Write::overwrite);
  ops_->column_sums(matrix(c), m.dx(), unit.gradient(kProjectionBias));
  ops_->linear_backward_input(linear(c, c), m.dx(), unit.parameter(kProjectionWeight), m.branch());
  ops_->attention_backward(attention(), m.qkv(i), m.attended(i), m.log_sums(i), m.branch(),
                           m.dqkv());
  ops_->column_sums(matrix(3 * c), m.dqkv(), unit.gradient(kAttentionBias));
  ops_->layer_norm_apply(matrix(c), {.x = m.x(i),
                                     .gamma = unit.parameter(kNorm1Weight),
                                     .beta = unit.parameter(kNorm1Bias),
                                     .y = m.normed(),
                                     .statistics = m.statistics(i)});
  ops_->linear_backward_weight(linear(c, 3 * c), m.normed(), m.dqkv(),
                               unit.gradient(kAttentionWeight), Write::overwrite);
  ops_->linear_backward_input(linear(c, 3 * c), m.dqkv(), unit.parameter(kAttentionWeight),
                              m.branch());
  ops_->layer_norm_backward(matrix(c), {.x = m.x(i),
                                        .statistics = m.statistics(i),
                                        .gamma = unit.parameter(kNorm1Weight),
                                        .dy = m.branch(),
                                        .dx = m.dx(),
                                        .dgamma = unit.gradient(kNorm1Weight),
                                        .dbeta = unit.gradient(kNorm1Bias)});
}

}  // namespace zero
