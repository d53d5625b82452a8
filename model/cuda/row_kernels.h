// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <driver_types.h>

#include <cstdint>

#include "device/view.h"
#include "model/ops.h"

/// The kernels under CudaOps: each call enqueues its launches on `stream`. Operands are already
/// checked by Ops; `partials` is scratch of partial_floats() floats.
namespace zero::cuda {

/// Floats of the partial sums over chunks of rows, `width` of each chunk.
std::int64_t partial_floats(std::int64_t rows, std::int64_t width);

/// first = round(sum over chunks of partials (chunks, width), in order), `first` and then `second`
/// side by side in a row of partials; `second` may be empty.
void fold_partials(cudaStream_t stream, std::int64_t chunks, const float* partials, View first,
                   View second);

void norm_forward(cudaStream_t stream, const MatrixShape& shape, const NormForward& operands);
void norm_apply(cudaStream_t stream, const MatrixShape& shape, const NormForward& operands);
/// partials: `columns` wide, twice as wide for a layer norm.
void norm_backward(cudaStream_t stream, const MatrixShape& shape, const NormBackward& operands,
                   float* partials);

void head_norm_forward(cudaStream_t stream, const HeadNormShape& shape,
                       const HeadNormForward& operands);
/// Floats of head_norm_backward's partial sums.
std::int64_t head_norm_floats(const HeadNormShape& shape);
void head_norm_backward(cudaStream_t stream, const HeadNormShape& shape,
                        const HeadNormBackward& operands, float* partials);

void add(cudaStream_t stream, View x, View delta, View sum);
void scale(cudaStream_t stream, View x, float factor);
void gelu_forward(cudaStream_t stream, View x, View y);
struct GeluBackward {
  View x, dy, y, dbias;
  float* partials = nullptr;  ///< `columns` wide
};
void gelu_backward(cudaStream_t stream, const MatrixShape& shape, const GeluBackward& operands);
/// y (rows, columns), fp32, += bias (columns) of the shape's dtype.
void add_bias(cudaStream_t stream, const MatrixShape& shape, View bias, View y);
void column_sums(cudaStream_t stream, const MatrixShape& shape, View x, View sums, float* partials);
void gated_forward(cudaStream_t stream, const MatrixShape& shape, Gate gate, View x, View y);
void gated_backward(cudaStream_t stream, const MatrixShape& shape, Gate gate, View x, View dy);
void rotary(cudaStream_t stream, const RotaryShape& shape, Turn turn, View x, View cosines,
            View sines);

void cross_entropy_forward(cudaStream_t stream, const LogitsShape& shape, View logits, View targets,
                           View losses);
void cross_entropy_backward(cudaStream_t stream, const LogitsShape& shape, View logits,
                            View targets, float scale, View losses);
void softmax_part(cudaStream_t stream, const LogitsShape& shape, View logits, View targets,
                  View parts);
void fold_softmax(cudaStream_t stream, std::int64_t rows, std::int64_t ranks, View parts,
                  View losses);
void cross_entropy_gradient(cudaStream_t stream, const LogitsShape& shape, View logits,
                            View targets, View softmax, float scale);
void sum(cudaStream_t stream, View losses, View total);

void embedding_forward(cudaStream_t stream, const EmbeddingShape& shape, View tokens,
                       View token_weight, View position_weight, View x);
/// Bytes of embedding_backward's scratch.
std::int64_t embedding_bytes(const EmbeddingShape& shape);
struct EmbeddingBackward {
  View tokens;
  View dx;
  View token_gradient;
  View position_gradient;
  void* scratch = nullptr;
};
void embedding_backward(cudaStream_t stream, const EmbeddingShape& shape,
                        const EmbeddingBackward& operands);

}  // namespace zero::cuda
