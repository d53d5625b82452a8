// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <span>
#include <string_view>
#include <vector>

#include "model/cpu/attention.h"
#include "model/cpu/products.h"
#include "model/cpu/row_kernels.h"
#include "model/ops.h"

namespace zero::cpu {

/// Ops on a device whose memory the CPU can access: products by products.h, everything else by the
/// row kernels, spread over the device's threads.
class CpuOps final : public Ops {
 public:
  explicit CpuOps(Device& device);

  void prepare(const LinearShape& shape, LinearUse use) override;
  void prepare(const AttentionShape& shape) override;
  void prepare(const MatrixShape& shape) override;
  void prepare(const HeadNormShape& shape) override;
  void prepare(const EmbeddingShape& /*shape*/) override {}  // columns have one owner: no scratch
  std::string bits(DType dtype) const override;
  std::int64_t scratch_bytes() const override;

 private:
  void do_linear_forward(const LinearShape& shape, View x, View weight, View bias, View y) override;
  void do_linear_backward_input(const LinearShape& shape, View dy, View weight, View dx) override;
  void do_linear_backward_weight(const LinearShape& shape, View x, View dy, View dweight,
                                 Write write) override;
  void do_column_sums(const MatrixShape& shape, View x, View sums) override;
  void do_norm_forward(const MatrixShape& shape, const NormForward& operands) override;
  void do_norm_apply(const MatrixShape& shape, const NormForward& operands) override;
  void do_norm_backward(const MatrixShape& shape, const NormBackward& operands) override;
  void do_head_norm_forward(const HeadNormShape& shape, const HeadNormForward& operands) override;
  void do_head_norm_backward(const HeadNormShape& shape, const HeadNormBackward& operands) override;
  void do_add(View x, View delta, View sum) override;
  void do_scale(View x, float factor) override;
  void do_gelu_forward(View x, View y) override;
  void do_gelu_backward(const MatrixShape& shape, View x, View dy, View y, View dbias) override;
  void do_gated_forward(const MatrixShape& shape, Gate gate, View x, View y) override;
  void do_gated_backward(const MatrixShape& shape, Gate gate, View x, View dy) override;
  void do_rotary_table(const RotaryShape& shape, const RotaryAngles& angles, View cosines,
                       View sines) override;
  void do_rotary(const RotaryShape& shape, Turn turn, View x, View cosines, View sines) override;
  void do_attention_forward(const AttentionShape& shape, View qkv, View out,
                            View log_sums) override;
  void do_attention_backward(const AttentionShape& shape, View qkv, View out, View log_sums,
                             View dout, View dqkv) override;
  void do_embedding_forward(const EmbeddingShape& shape, View tokens, View token_weight,
                            View position_weight, View x) override;
  void do_embedding_backward(const EmbeddingShape& shape, View tokens, View dx, View token_gradient,
                             View position_gradient) override;
  void do_cross_entropy_forward(const LogitsShape& shape, View logits, View targets,
                                View losses) override;
  void do_cross_entropy_backward(const LogitsShape& shape, View logits, View targets, float scale,
                                 View losses) override;
  void do_softmax_part(const LogitsShape& shape, View logits, View targets, View parts) override;
  void do_fold_softmax(std::int64_t rows, std::int64_t ranks, View parts, View losses) override;
  void do_cross_entropy_gradient(const LogitsShape& shape, View logits, View targets, View softmax,
                                 float scale) override;
  void do_sum(View losses, View total) override;

  void submit_product(std::string_view what, const ProductShape& shape,
                      const Product::Operands& operands);
  /// Submits work that calls `kernel` for all rows, in ranges of at least `grain` rows, on all
  /// threads.
  void submit_rows(std::string_view what, std::int64_t rows, std::int64_t grain,
                   std::function<void(Rows)> kernel);
  /// Bytes of partial sums over rows: `width` floats for each kRowChunk rows.
  static std::int64_t partial_bytes(std::int64_t rows, std::int64_t width);
  /// Submits work that computes `sums`, sums over the rows of `s` with as many columns: calls
  /// add(rows, partial) for each kRowChunk rows, with the zeroed partials of all `sums` side by
  /// side.
  using AddRows = std::function<void(Rows, std::span<float>)>;
  void submit_sums(std::string_view what, const MatrixShape& s, AddRows add,
                   std::vector<View> sums);

  int threads_;
  Products products_;
  Attention attention_;
  std::int64_t partial_bytes_ = 0;
};

}  // namespace zero::cpu
