// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "inference/cpu/pair_rows.h"
#include "inference/cpu/weight_codes.h"
#include "inference/inference_ops.h"

namespace zero::cpu {

// A weight as squares of 32 x 32 elements (model/cpu/packed_kernels.h), one column of squares after
// another, then the scales (weight_codes.h). Plain elements and 8-bit codes lie where the kernels
// of the compute dtype keep them in a square of their own; 4-bit codes by rows of depth, column i
// in the low half of byte i, column 16 + i in its high half; codes for bf16 instructions as
// pair_rows.h has it. An element's value is its level times its scale: rounded to fp32, or to bf16
// if tiles read it; pairs multiply levels and scale the sums of groups.

/// Where a stored weight lies.
struct StoredSquares {
  const std::byte* data = nullptr;
  WeightFormat format = WeightFormat::plain;
  DType dtype = DType::fp32;  ///< of plain elements
  std::int64_t in = 0;

  std::int64_t steps() const { return squares(in); }  ///< squares of a column
  std::int64_t square_bytes() const;
  const std::byte* column(std::int64_t column) const {
    return data + column * steps() * square_bytes();
  }
  const std::byte* square(std::int64_t column, std::int64_t step) const {
    return this->column(column) + step * square_bytes();
  }
  const std::byte* scales = nullptr;
  ColumnScales scales_of(std::int64_t column) const {
    return {format, in, scales + column * ColumnScales::bytes(format, in)};
  }
};
StoredSquares stored_squares(const WeightShape& shape, const View& weight);
/// A column of squares that kernels of bf16 instructions multiply.
PairRows pair_rows(const StoredSquares& stored, std::int64_t column);

/// The dtype of the squares that products of a weight read: fp32, unless kernels of bf16
/// instructions read bf16.
DType product_dtype(const WeightShape& shape);
std::int64_t packed_bytes(const WeightShape& shape);
/// A group is a column of squares; the parts are the squares and, if there are codes, the scales.
WeightCut packed_cut(const WeightShape& shape);
/// InferenceOps::pack of a plain weight.
void pack_weight(const WeightShape& shape, std::int64_t first, std::span<const float> rows,
                 View weight, int threads);
/// InferenceOps::pack of codes.
void pack_weight(const QuantizedRows& rows, View weight, int threads);
/// Columns of squares [first, first + count) as products read them, to memory aligned to 64 bytes.
void widen_columns(const WeightShape& shape, const View& weight, std::int64_t first,
                   std::int64_t count, std::byte* to);
/// x (tokens, in) = the columns `tokens` of the weight, in the compute dtype.
void gather_columns(const WeightShape& shape, const View& weight,
                    std::span<const std::int32_t> tokens, View x);

}  // namespace zero::cpu
