// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <string_view>
#include <utility>

#include "ops/cpu/packed_kernels.h"
#include "ops/cpu/packed_product.h"
#include "ops/product_shape.h"
#include "ops/weight_shape.h"

namespace zero::cpu {

/// A processor's instructions for products of bf16; each level includes those before it.
enum class Bf16Instructions : std::uint8_t {
  none,
  pairs,  ///< AVX512_BF16: vectors of pairs; with AVX512_VBMI, which only Cooper Lake lacks
  tiles,  ///< AMX, which the system must permit
};

/// The best instructions for products of this process: those of processor and system, up to the
/// limit.
Bf16Instructions bf16_instructions();
/// Limits the process to the instructions of `most`. Call before the first product; for programs
/// and tests that imitate another processor.
void limit_bf16_instructions(Bf16Instructions most);

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

/// Memory for a packed right operand of `shape`.
std::int64_t packed_right_bytes(const ProductShape& shape);
/// Packs the right operand `b` of `shape` into `to`, aligned to 64 bytes.
PackedRight pack_right(const ProductShape& shape, const void* b, void* to);

/// Runs `turns` rounds of the processor's instructions for products of `dtype` on operands in
/// registers, on this thread, and returns their FLOP: an upper bound for the rate of products.
/// Returns 0, and runs nothing, if products use ordinary vector arithmetic.
double flop_in_registers(DType dtype, std::int64_t turns);

/// Prepares products for a fixed number of threads, each shape once, with the kernels that
/// gemm_kernels() has for their dtype. Callers provide each product's scratch. The same shape
/// gives the same bits on any rank, with any number of threads and any partition of rows.
class Products {
 public:
  explicit Products(int threads) : threads_(threads) {}

  /// The product of `shape`, prepared on first use. Valid as long as this object.
  const Product& get(const ProductShape& shape, Right right = Right::in_memory);
  /// The largest scratch of the products prepared so far.
  std::int64_t scratch_bytes() const { return scratch_bytes_; }

 private:
  int threads_;
  std::map<std::pair<ProductShape, Right>, Product> made_;
  std::int64_t scratch_bytes_ = 0;
};

}  // namespace zero::cpu
