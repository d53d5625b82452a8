// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>

namespace zero::cpu {

/// One prepared product of one shape. Used by one thread at a time.
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

/// A right operand packed once for many products (Right::packed), which read all of it or a part
/// starting at some row and column.
struct PackedRight {
  const std::byte* data = nullptr;
  std::int64_t down = 0;    ///< bytes between rows 32 apart
  std::int64_t across = 0;  ///< bytes between columns 32 apart

  /// Operands::b of a product whose right operand begins at `row` and `column`, multiples of 32.
  const void* from(std::int64_t row, std::int64_t column) const;
};

/// The layout of a product's right operand: that of its shape, or packed by pack_right(); ldb is
/// then the number of rows of the whole packed operand. `packed_fp32`: by pack_right() of a fp32
/// shape; such a product is by the kernels of fp32, whatever the dtype of its left operand.
enum class Right : std::uint8_t { in_memory, packed, packed_fp32 };

}  // namespace zero::cpu
