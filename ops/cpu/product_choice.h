// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string_view>

#include "ops/cpu/packed_kernels.h"
#include "ops/weight_shape.h"

namespace zero::cpu {

// Which code multiplies on this processor: the whole choice, for training and for inference.
//
//   operands                        matrices in memory   stored weights, <= 16 rows   more rows
//   fp32, fp16                      gemm, floats         gemv (*)                     gemm, floats
//   bf16, AMX                       gemm, tiles          gemm, tiles                  gemm, tiles
//   bf16, AVX512_BF16 if faster     gemm, pairs          bf16_dot                     bf16_dot
//   bf16, other processors          gemm, floats         gemv (*)                     gemm, floats
//
// (*) gemm if has_gemv() is false. Formats of weights decide nothing: gemv and bf16_dot widen
// elements in registers, gemm reads columns that were widened in the cache. Attention over a cache
// in bf16 is by pairs where products are.

/// The kernels of a dtype's products (packed_kernels.h).
enum class KernelKind : std::uint8_t { floats, pairs, tiles };
KernelKind kernels_of(DType dtype);
const packed::Kernels& gemm_kernels(DType dtype);
/// "tiles", "pairs", "floats".
std::string_view name_of(KernelKind kernels);

/// The code that multiplies `rows` rows by a stored weight.
enum class Algorithm : std::uint8_t {
  gemv,      ///< skinny_product.h
  bf16_dot,  ///< bf16_dot_product.h
  gemm,      ///< packed_product.h
};
Algorithm algorithm_of(const WeightShape& shape, std::int64_t rows);
/// The dtype of the tiles that products of a stored weight read, and of their x: fp32, unless
/// kernels of bf16 instructions read bf16.
DType product_dtype(const WeightShape& shape);

}  // namespace zero::cpu
