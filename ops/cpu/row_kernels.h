// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "device/view.h"
#include "ops/op_shapes.h"

namespace zero::cpu {

/// The first element of row `row` of a row-major matrix whose rows begin `stride` elements apart.
template <typename T>
T* row_of(const View& view, std::int64_t row, std::int64_t stride) {
  return static_cast<T*>(view.data()) + row * stride;
}

/// The vector kernels under the CPU's Ops: each computes rows [begin, end) of row-major operands on
/// the calling thread, with the machine's best instruction set. Views are fp32, bf16 or fp16; the
/// bits of a row do not depend on its range.
struct Rows {
  std::int64_t begin = 0;
  std::int64_t end = 0;
};

void norm_forward_rows(std::int64_t columns, const NormForward& operands, Rows rows);
void norm_apply_rows(std::int64_t columns, const NormForward& operands, Rows rows);
/// Adds the rows' addends to `sums`, fp32, initially zero: of dweight and, for a layer norm, of
/// dbias.
void norm_backward_rows(std::int64_t columns, const NormBackward& operands, Rows rows,
                        std::span<float> sums);

void head_norm_rows(const HeadNormShape& shape, const HeadNormForward& operands, Rows rows);
/// Adds the rows' addends to `sums`, fp32, initially zero: of the queries' weight and the keys'.
void head_norm_backward_rows(const HeadNormShape& shape, const HeadNormBackward& operands,
                             Rows rows, std::span<float> sums);

/// Elements, not rows.
void add_range(View x, View delta, View sum, Rows elements);
/// x = x * factor
void scale_range(View x, float factor, Rows elements);
void gelu_range(View x, View y, Rows elements);

struct GeluBackwardRows {
  std::int64_t columns = 0;
  View x, dy;
  View y{};  ///< empty: not written
};
void gelu_backward_rows(const GeluBackwardRows& operands, Rows rows, std::span<float> dbias);
void column_sum_rows(View x, std::int64_t columns, Rows rows, std::span<float> sums);
/// out = round(partials[0] + partials[1] + ...), each `out.count()` long, `stride` elements apart.
void fold_partials(const float* partials, std::int64_t count, std::int64_t stride, View out);

void gated_rows(Gate gate, View x, View y, std::int64_t columns, Rows rows);
void gated_backward_rows(Gate gate, View x, View dy, std::int64_t columns, Rows rows);

struct RotaryRows {
  RotaryShape shape;
  Turn turn = Turn::forward;
  View x, cosines, sines;
};
void rotary_rows(const RotaryRows& operands, Rows rows);

struct LogitRows {
  LogitsShape shape;
  View logits, targets;
  View losses{};  ///< of the whole vocabulary
  View parts{};   ///< kSoftmaxPart per row: output, or input for the whole vocabulary
  float scale = 0;
};
void cross_entropy_rows(const LogitRows& operands, Rows rows);
/// As cross_entropy_rows; overwrites logits with scale * (softmax - one hot).
void cross_entropy_gradient_rows(const LogitRows& operands, Rows rows);
void softmax_part_rows(const LogitRows& operands, Rows rows);
/// Ops::fold_softmax, of all rows and scalar: rescales the sums of exponentials to the largest
/// logit of all ranks.
void fold_softmax_rows(std::int64_t rows, std::int64_t ranks, View parts, View losses);
/// Overwrites logits with scale * (softmax - one hot).
void softmax_gradient_rows(const LogitRows& operands, Rows rows);

struct EmbeddingRows {
  EmbeddingShape shape;
  View tokens, token_weight, position_weight, x;
};
void embedding_rows(const EmbeddingRows& operands, Rows rows);
/// Adds x (here: dx) to the fp32 tables (here: gradients), all rows in order, only columns
/// [columns.begin, columns.end).
void embedding_backward_columns(const EmbeddingRows& operands, Rows columns);

}  // namespace zero::cpu
