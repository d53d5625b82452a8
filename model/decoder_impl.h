// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "model/decoder.h"
#include "model/decoder_memory.h"
#include "model/head.h"
#include "model/layers.h"
#include "model/ops.h"

namespace zero {

/// Units, operations and memory of one decoder, and the order of its computations.
class Decoder::Impl {
 public:
  Impl(Engine& engine, const DecoderShape& decoder, BatchShape batch, OpListener* listener);

  std::vector<Use> order() const;
  void allocate();
  std::int64_t activation_bytes() const { return memory_.bytes() + ops_->scratch_bytes(); }
  void train(View inputs, View targets, float gradient_scale, View loss_sum);
  void evaluate(View inputs, View targets, View loss_sum);
  void next_logits(View inputs, std::int64_t position, View logits);

  const DecoderShape decoder;
  const BatchShape shape;

 private:
  void register_units();
  void make_layers();
  void prepare();
  bool tied() const { return decoder.head == DecoderShape::Head::tied; }

  /// Embedding and blocks: what the last norm takes is left in memory_.
  void forward(View inputs);
  void forward_block(std::int64_t i);
  NormLayer::Operands last_operands() const;
  /// Calls body(weight of the head) with the last norm's output in memory_.normed().
  template <typename Body>
  void with_head(const Body& body);
  void train_tied(View targets, float gradient_scale);
  void train_separate(View targets, float gradient_scale);
  void backward_norm();
  void backward_block(std::int64_t i);
  void backward_mlp(std::int64_t i, const GradientLease& unit);
  void backward_attention(std::int64_t i, const GradientLease& unit);
  void backward_embedding(View inputs);
  void clear_embedding(const GradientLease& unit);

  LinearShape linear(std::int64_t in, std::int64_t out) const {
    return {.rows = rows_,
            .in = in,
            .out = out,
            .layout = decoder.layout,
            .dtype = dtype_,
            .weight_gradient = dtype_};
  }
  MatrixShape matrix(std::int64_t columns) const { return {rows_, columns, dtype_}; }
  AttentionShape attention() const {
    return {shape.batch,        shape.sequence, decoder.heads,
            decoder.head_width, dtype_,         decoder.kv_heads};
  }
  RotaryShape rotary() const {
    return {shape.batch,        shape.sequence,      decoder.heads + decoder.kv_heads,
            decoder.head_width, decoder.qkv_width(), dtype_};
  }
  EmbeddingShape embedding() const {
    return {shape.batch, shape.sequence, decoder.width, decoder.vocabulary, dtype_};
  }
  UnitId block(std::int64_t i) const { return blocks_[static_cast<std::size_t>(i)]; }

  /// Leases, of which a listener hears.
  ParameterLease enter(UnitId unit);
  GradientLease enter_backward(UnitId unit);

  Engine& engine_;
  const DType dtype_;
  const std::int64_t rows_;  // batch * sequence
  UnitId embedding_;
  std::vector<UnitId> blocks_;
  UnitId last_;  // the last norm, and the head that is not tied
  int positions_ = kAbsent;
  int head_weight_ = kAbsent;  // in last_
  NormLayer norm1_, norm2_, last_norm_;
  LinearLayer qkv_, projection_, hidden_, output_;
  LossHead head_;
  OpListener* listener_;  // null: nobody listens
  std::unique_ptr<Ops> ops_;
  DecoderMemory memory_;
};

}  // namespace zero
