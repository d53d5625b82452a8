// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <string_view>
#include <utility>

#include "model/product_shape.h"

namespace zero::cpu {

/// One product of one shape, made ready. Not for two threads at once.
class Product {
 public:
  struct Operands {
    const void* a = nullptr;
    const void* b = nullptr;
    const void* bias = nullptr;
    void* c = nullptr;
    void* scratch = nullptr;
  };
  virtual ~Product() = default;
  virtual void run(const Operands& operands) = 0;
  virtual std::int64_t scratch_bytes() const = 0;
};

/// A right operand laid out once for many products (Right::packed) that read all of it, or a part
/// from some row and column on.
struct PackedRight {
  const std::byte* data = nullptr;
  std::int64_t down = 0;    ///< bytes between rows 32 apart
  std::int64_t across = 0;  ///< bytes between columns 32 apart

  /// Operands::b of a product whose operand begins at `row` and `column`, multiples of 32.
  const void* from(std::int64_t row, std::int64_t column) const;
};
/// Memory for the right operand of `shape`.
std::int64_t packed_right_bytes(const ProductShape& shape);
/// Lays the right operand `b` of `shape` out in `to`, aligned to 64 bytes.
PackedRight pack_right(const ProductShape& shape, const void* b, void* to);

/// How a product finds its right operand: as its shape says, or as pack_right() left it; ldb is
/// then the number of rows of all that was packed.
enum class Right : std::uint8_t { in_memory, packed };

/// Which kernels the processor's products of `dtype` are made of: "tiles", "pairs", "floats".
std::string_view name_of_kernels(DType dtype);

/// Runs `turns` rounds of the processor's instructions for products of `dtype` on operands that
/// stay in registers, on this thread, and gives the FLOP of them: what no product exceeds. 0, and
/// nothing is run, if products are made of ordinary vector arithmetic.
double flop_in_registers(DType dtype, std::int64_t turns);

/// Makes products for a fixed number of threads, each shape once, by the kernels that the processor
/// has for their dtype (see packed_kernels.h). The scratch of each product is the caller's. Same
/// shape, same bits on any rank, with any number of threads and however rows are cut.
class Products {
 public:
  explicit Products(int threads) : threads_(threads) {}

  /// The product of `shape`, made now if it is new. Valid as long as this.
  Product& get(const ProductShape& shape, Right right = Right::in_memory);
  /// The largest scratch of the products made so far.
  std::int64_t scratch_bytes() const { return scratch_bytes_; }

 private:
  int threads_;
  std::map<std::pair<ProductShape, Right>, std::unique_ptr<Product>> made_;
  std::int64_t scratch_bytes_ = 0;
};

}  // namespace zero::cpu
