// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>

#include "architecture/layer_kinds.h"
#include "base/checked_math.h"
#include "device/view.h"

namespace zero {

/// Whether a result replaces its destination or is added to it.
enum class Write : std::uint8_t { overwrite, add };

/// rows x columns, row-major, of one dtype.
struct MatrixShape {
  std::int64_t rows = 0;
  std::int64_t columns = 0;
  DType dtype = DType::fp32;

  std::int64_t count() const { return checked_mul(rows, columns); }
};

/// y (rows, out) = x (rows, in) * W + bias
struct LinearShape {
  std::int64_t rows = 0;
  std::int64_t in = 0;
  std::int64_t out = 0;
  WeightLayout layout = WeightLayout::in_out;
  DType dtype = DType::fp32;            ///< of x, W, bias, y and the gradients of x and y
  DType weight_gradient = DType::fp32;  ///< `dtype`, or fp32
  std::int64_t out_stride = 0;          ///< elements between rows of y and dy; 0: out

  std::int64_t row_stride() const { return out_stride == 0 ? out : out_stride; }
};

/// Operands of a linear layer followed by GELU: z (rows, out) = x W + bias, y = gelu(z).
struct LinearGeluForward {
  View x, weight, bias;
  View z, y;  ///< the shape's dtype; distinct memory
};

/// Causal self-attention of `batch` sequences; C = heads * head_width.
struct AttentionShape {
  std::int64_t batch = 0;
  std::int64_t sequence = 0;
  std::int64_t heads = 0;
  std::int64_t head_width = 0;
  DType dtype = DType::fp32;
  std::int64_t kv_heads = 0;  ///< divides heads; each serves heads / kv_heads; 0: as heads
  /// Positions that a query sees: its own and those before it; 0: all up to its own.
  std::int64_t window = 0;
  float scale = 0;  ///< that scores are multiplied by; 0: 1 / sqrt(head_width)

  float score_scale() const {
    return scale != 0 ? scale : 1.0F / std::sqrt(static_cast<float>(head_width));
  }
  std::int64_t key_heads() const { return kv_heads == 0 ? heads : kv_heads; }
  /// Elements of a row of q, k and v side by side.
  std::int64_t qkv_width() const { return (heads + 2 * key_heads()) * head_width; }
  /// Positions that the last query sees, all of the sequence at most: a window that holds all of it
  /// changes nothing.
  std::int64_t seen() const { return window == 0 ? sequence : std::min(window, sequence); }
};

/// The direction of rotary embeddings: forward rotates by the position's angles, backward (the
/// gradient) by their negatives.
enum class Turn : std::uint8_t { forward, backward };

/// The first `heads` heads of each row of `row_width` elements are rotated, the rest is unchanged.
struct RotaryShape {
  std::int64_t batch = 0;
  std::int64_t sequence = 0;
  std::int64_t heads = 0;
  std::int64_t head_width = 0;  ///< even
  std::int64_t row_width = 0;
  DType dtype = DType::fp32;

  /// Elements of each table, cosines and sines: (sequence, head_width / 2).
  std::int64_t table() const { return sequence * (head_width / 2); }
};

/// Token and position embedding.
struct EmbeddingShape {
  std::int64_t batch = 0;
  std::int64_t sequence = 0;
  std::int64_t width = 0;
  std::int64_t vocabulary = 0;  ///< rows of the table of tokens
  DType dtype = DType::fp32;
  std::int64_t first = 0;  ///< the token of its first row; tokens outside the table give zeros
};

/// A chunk of rows of logits. This rank holds `columns` of the vocabulary.
struct LogitsShape {
  std::int64_t rows = 0;
  std::int64_t columns = 0;
  DType dtype = DType::fp32;
  std::int64_t first = 0;   ///< the token of the first column
  std::int64_t stride = 0;  ///< elements between rows; 0: columns. Gaps are not touched

  std::int64_t row_stride() const { return stride == 0 ? columns : stride; }
};

/// The fp32 statistics of a row that softmax_part writes: the largest logit, the sum of exp(logit -
/// largest), the target's logit (0 if another rank holds it).
inline constexpr std::int64_t kSoftmaxPart = 3;

/// `bias`: of the norm, or its gradient.
inline NormKind norm_kind(const View& bias, bool plus_one) {
  if (!bias.empty()) return NormKind::layer;
  return plus_one ? NormKind::rms_plus_one : NormKind::rms;
}

/// Operands of a norm's forward; (rows, columns) each but for weight and bias (columns).
struct NormForward {
  View x;
  View delta{};  ///< added to x first; empty: nothing
  View sum{};    ///< receives x + delta, rounded; present if delta is; may be x's memory
  View weight;
  View bias{};  ///< empty: an RMS norm
  View y;       ///< without a delta it may be x's memory
  /// fp32 statistics of each row: mean (layer norm only) and reciprocal deviation from the mean,
  /// for an RMS norm from zero.
  View statistics;
  float epsilon = 1e-5F;
  bool plus_one = false;  ///< of an RMS norm: its weights are 1 + `weight`

  NormKind kind() const { return norm_kind(bias, plus_one); }
};

/// Operands of a norm's backward.
struct NormBackward {
  View x;           ///< the normalised rows: forward's `sum` if it had a delta
  View statistics;  ///< written by forward
  View weight;
  View dy;
  View dx;       ///< in and out: the norm's gradient is added to the residual's
  View dweight;  ///< overwritten; dtype of x, or fp32
  View dbias{};  ///< as dweight; empty: an RMS norm
  bool plus_one = false;

  NormKind kind() const { return norm_kind(dbias, plus_one); }
};

/// RMS norms of each head of q and of each of k, in rows of q, k and v side by side.
struct HeadNormShape {
  std::int64_t rows = 0;
  std::int64_t heads = 0;  ///< of queries
  std::int64_t kv_heads = 0;
  std::int64_t head_width = 0;
  DType dtype = DType::fp32;

  std::int64_t normed_heads() const { return heads + kv_heads; }
  std::int64_t qkv_width() const { return (heads + 2 * kv_heads) * head_width; }
  std::int64_t count() const { return checked_mul(rows, qkv_width()); }
};

/// Weights are of head_width elements each: one for all queries, one for all keys.
struct HeadNormForward {
  View x;  ///< (rows, qkv_width)
  View query_weight, key_weight;
  View y;             ///< as x, with the values of x; may be its memory
  View statistics{};  ///< fp32 (rows, normed_heads): reciprocal deviations from 0; may be empty
  float epsilon = 1e-5F;
  bool plus_one = false;  ///< as in NormForward
};

struct HeadNormBackward {
  View x;           ///< forward's
  View statistics;  ///< written by forward
  View query_weight, key_weight;
  View dy;            ///< in and out: becomes the gradient of x; that of values stays
  View dquery, dkey;  ///< of the weights; overwritten; dtype of x, or fp32
  bool plus_one = false;
};

}  // namespace zero
