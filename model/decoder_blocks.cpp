// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0

// One block of a decoder, forward and backward.
#include "model/decoder_impl.h"

namespace zero {

void Decoder::Impl::forward_block(std::int64_t i) {
  const ParameterLease unit = enter(block(i));
  const DecoderMemory& m = memory_;
  // x(i) is the layer below's middle plus what its MLP left in branch; the first is ready.
  norm1_.forward(*ops_, unit,
                 {.x = i == 0 ? m.x(0) : m.middle(i - 1),
                  .delta = i == 0 ? View() : m.branch(),
                  .sum = i == 0 ? View() : m.x(i),
                  .y = m.normed(),
                  .statistics = m.statistics(i)});
  qkv_.forward(*ops_, unit, m.normed(), m.qkv(i));
  if (decoder.rotary) {
    ops_->rotary(rotary(), Turn::forward, m.qkv(i), m.cosines(), m.sines());
  }
  ops_->attention_forward(attention(), m.qkv(i), m.attended(i), m.log_sums(i));
  projection_.forward(*ops_, unit, m.attended(i), m.branch());
  norm2_.forward(*ops_, unit,
                 {.x = m.x(i),
                  .delta = m.branch(),
                  .sum = m.middle(i),
                  .y = m.normed(),
                  .statistics = m.middle_statistics(i)});
  hidden_.forward(*ops_, unit, m.normed(), m.hidden(i));
  if (decoder.activation == DecoderShape::Activation::swiglu) {
    ops_->swiglu_forward(matrix(decoder.intermediate), m.hidden(i), m.activated());
  } else {
    ops_->gelu_forward(m.hidden(i), m.activated());
  }
  output_.forward(*ops_, unit, m.activated(), m.branch());
}

void Decoder::Impl::backward_block(std::int64_t i) {
  const GradientLease unit = enter_backward(block(i));
  backward_mlp(i, unit);
  backward_attention(i, unit);
}

// dx: the gradient of the block's output becomes that of its middle.
void Decoder::Impl::backward_mlp(std::int64_t i, const GradientLease& unit) {
  const DecoderMemory& m = memory_;
  View dhidden = m.hidden(i);
  if (decoder.activation == DecoderShape::Activation::swiglu) {
    output_.backward_input(*ops_, unit, m.dx(), m.activated());
    ops_->swiglu_backward(matrix(decoder.intermediate), m.hidden(i), m.activated());
    hidden_.backward_bias(*ops_, unit, dhidden);
  } else {
    dhidden = m.dhidden();
    output_.backward_input(*ops_, unit, m.dx(), dhidden);
    ops_->gelu_backward(matrix(decoder.intermediate), m.hidden(i), dhidden, m.activated(),
                        unit.gradient(hidden_.bias));
  }
  output_.backward_weight(*ops_, unit, m.activated(), m.dx());
  output_.backward_bias(*ops_, unit, m.dx());
  norm2_.apply(*ops_, unit,
               {.x = m.middle(i),
                .delta = {},
                .sum = {},
                .y = m.normed(),
                .statistics = m.middle_statistics(i)});
  hidden_.backward_weight(*ops_, unit, m.normed(), dhidden);
  hidden_.backward_input(*ops_, unit, dhidden, m.branch());
  norm2_.backward(
      *ops_, unit,
      {.x = m.middle(i), .statistics = m.middle_statistics(i), .dy = m.branch(), .dx = m.dx()});
}

// dx: the gradient of the block's middle becomes that of its input.
void Decoder::Impl::backward_attention(std::int64_t i, const GradientLease& unit) {
  const DecoderMemory& m = memory_;
  projection_.backward_weight(*ops_, unit, m.attended(i), m.dx());
  projection_.backward_bias(*ops_, unit, m.dx());
  projection_.backward_input(*ops_, unit, m.dx(), m.dattended());
  ops_->attention_backward(attention(), m.qkv(i), m.attended(i), m.log_sums(i), m.dattended(),
                           m.dqkv());
  if (decoder.rotary) ops_->rotary(rotary(), Turn::backward, m.dqkv(), m.cosines(), m.sines());
  qkv_.backward_bias(*ops_, unit, m.dqkv());
  norm1_.apply(
      *ops_, unit,
      {.x = m.x(i), .delta = {}, .sum = {}, .y = m.normed(), .statistics = m.statistics(i)});
  qkv_.backward_weight(*ops_, unit, m.normed(), m.dqkv());
  qkv_.backward_input(*ops_, unit, m.dqkv(), m.branch());
  norm1_.backward(*ops_, unit,
                  {.x = m.x(i), .statistics = m.statistics(i), .dy = m.branch(), .dx = m.dx()});
}

}  // namespace zero
