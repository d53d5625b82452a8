// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <driver_types.h>

#include <functional>
#include <memory>
#include <string_view>

#include "model/cuda/attention.h"
#include "model/cuda/products.h"
#include "model/ops.h"

namespace zero::cuda {

/// Ops on a CUDA device, or on a planning device that stands for one: products by a library
/// (products.h), attention by cuDNN if it supports the shape, otherwise by our own kernels
/// (attention.h), everything else by row_kernels.h. Operations of one device share one scratch: all
/// are on its compute stream.
class CudaOps final : public Ops {
 public:
  explicit CudaOps(Device& device);

  void prepare(const LinearShape& shape, LinearUse use) override;
  void prepare(const AttentionShape& shape) override;
  void prepare(const MatrixShape& shape) override;
  void prepare(const HeadNormShape& shape) override;
  void prepare(const EmbeddingShape& shape) override;
  /// The versions of the libraries.
  std::string bits(DType dtype) const override;
  /// Whether cuDNN refused attention, and its reason.
  std::string note() const override { return note_; }
  std::int64_t scratch_bytes() const override { return scratch_bytes_; }

 private:
  void do_linear_forward(const LinearShape& shape, View x, View weight, View bias, View y) override;
  void do_linear_backward_input(const LinearShape& shape, View dy, View weight, View dx) override;
  void do_linear_backward_weight(const LinearShape& shape, View x, View dy, View dweight,
                                 Write write) override;
  Fused fuse(const LinearShape& shape, const LinearGeluForward& operands) override;
  Fused fuse(const LinearShape& shape, View x, View dy, View dweight, View dbias) override;
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

  /// Submits work that enqueues on the compute stream's native queue.
  void submit(std::string_view what, std::function<void(cudaStream_t)> work);
  void submit_product(std::string_view what, const ProductShape& shape,
                      const Products::Operands& operands);
  void prepare_product(const ProductShape& shape);
  float* partials(std::string_view what, std::int64_t rows, std::int64_t width) const;
  void need(std::int64_t bytes);
  /// Builds the library's plans for a shape. A refusal ends the library's use, or, if the shape has
  /// a window, its use for such.
  void prepare_library(const AttentionShape& shape);
  /// cuDNN's attention if it supports the shape, otherwise ours.
  Attention& attention_of(const AttentionShape& shape) const;

  std::unique_ptr<Products> products_;
  std::unique_ptr<Attention> plain_attention_;
  std::unique_ptr<Attention> library_attention_;  // null: none, or refused a shape
  bool library_windows_ = true;                   // whether it refused none that has a window
  std::string note_;
  std::int64_t scratch_bytes_ = 0;
};

}  // namespace zero::cuda
