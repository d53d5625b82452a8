// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "ops/cpu/bf16_dot_product.h"
#include "ops/cpu/stored_tiles.h"
#include "ops/inference_ops.h"

namespace zero::cpu {

/// Where `weight` lies.
StoredTiles stored_tiles(const WeightShape& shape, const View& weight);
/// A column of tiles that kernels of bf16 instructions multiply.
Bf16DotProduct bf16_dot_product(const StoredTiles& stored, std::int64_t column);

std::int64_t packed_bytes(const WeightShape& shape);
/// A column block is a column of tiles; the parts are the tiles and, if there are codes, the
/// scales.
WeightCut packed_cut(const WeightShape& shape);
/// InferenceOps::pack of a plain weight.
void pack_weight(const WeightShape& shape, std::int64_t first, std::span<const float> rows,
                 View weight, int threads);
/// InferenceOps::pack of codes.
void pack_weight(const QuantizedRows& rows, View weight, int threads);
/// Columns of tiles [first, first + count) as products read them, to memory aligned to 64 bytes.
void widen_columns(const WeightShape& shape, const View& weight, std::int64_t first,
                   std::int64_t count, std::byte* to);
/// x (tokens, in) = the columns `tokens` of the weight, in the compute dtype.
void gather_columns(const WeightShape& shape, const View& weight,
                    std::span<const std::int32_t> tokens, View x);

}  // namespace zero::cpu
