// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "model/gpt2.h"
#include "model/gpt2_memory.h"
#include "model/ops.h"

namespace zero {

// Positions in the units' parameter lists.
enum EmbeddingParameter { kTokens, kPositions };
enum NormParameter { kWeight, kBias };
enum BlockParameter {
  kNorm1Weight,
  kNorm1Bias,
  kAttentionWeight,
  kAttentionBias,
  kProjectionWeight,
  kProjectionBias,
  kNorm2Weight,
  kNorm2Bias,
  kHiddenWeight,
  kHiddenBias,
  kOutputWeight,
  kOutputBias,
};

/// Units, operations and memory of one GPT-2, and the order of its computations.
class Gpt2::Impl {
 public:
  Impl(Engine& engine, const Gpt2Config& config, BatchShape shape);

  std::vector<Use> order() const;
  void allocate();
  std::int64_t activation_bytes() const { return memory_.bytes() + ops_->scratch_bytes(); }
  void train(View inputs, View targets, float gradient_scale, View loss_sum);
  void evaluate(View inputs, View targets, View loss_sum);
  void next_logits(View inputs, std::int64_t position, View logits);

  const Gpt2Config config;
  const BatchShape shape;

 private:
  void prepare();
  /// Embedding, blocks and last norm: leaves the normed rows in memory_.normed().
  void forward(View inputs);
  void forward_block(std::int64_t i);
  void head(View targets, float gradient_scale, View loss_sum);
  void backward(View inputs);
  void backward_block(std::int64_t i);
  void backward_mlp(std::int64_t i, const GradientLease& unit);
  void backward_attention(std::int64_t i, const GradientLease& unit);

  LinearShape linear(std::int64_t in, std::int64_t out) const {
    return {.rows = rows_,
            .in = in,
            .out = out,
            .layout = WeightLayout::in_out,
            .dtype = dtype_,
            .weight_gradient = dtype_};
  }
  LinearShape head_linear(std::int64_t rows) const {
    return {.rows = rows,
            .in = config.width,
            .out = config.vocabulary,
            .layout = WeightLayout::out_in,
            .dtype = dtype_,
            .weight_gradient = DType::fp32};
  }
  MatrixShape matrix(std::int64_t columns) const { return {rows_, columns, dtype_}; }
  AttentionShape attention() const {
    return {shape.batch, shape.sequence, config.heads, config.width / config.heads, dtype_};
  }
  EmbeddingShape embedding() const {
    return {shape.batch, shape.sequence, config.width, config.vocabulary, dtype_};
  }
  UnitId block(std::int64_t i) const { return blocks_[static_cast<std::size_t>(i)]; }

  Engine& engine_;
  const DType dtype_;
  const std::int64_t rows_;  // batch * sequence
  UnitId embedding_;
  std::vector<UnitId> blocks_;
  UnitId norm_;
  std::unique_ptr<Ops> ops_;
  Gpt2Memory memory_;
};

}  // namespace zero
