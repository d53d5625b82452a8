// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "base/checked_math.h"
#include "ops/cpu/packed_kernels.h"
#include "ops/product_shape.h"

namespace zero::cpu::packed {

/// Rows, columns or depth of an operand, or of one or more of its tiles.
struct Range {
  std::int64_t begin = 0;
  std::int64_t count = 0;

  Range tile(std::int64_t i) const { return tiles(i, 1); }
  Range tiles(std::int64_t i, std::int64_t number) const {
    return {begin + i * kTile, std::min(number * kTile, count - i * kTile)};
  }
};

/// Neighbouring tiles, counted from the start of a piece.
struct Tiles {
  std::int64_t begin = 0;
  std::int64_t end = 0;
};

/// Cuts [0, count) into even parts of whole blocks.
struct Cut {
  std::int64_t count = 0;
  std::int64_t part = 0;

  static Cut even(std::int64_t count, std::int64_t most) {
    const std::int64_t parts = div_ceil(count, most);
    return {count, round_up(div_ceil(count, parts), kTile)};
  }
  std::int64_t parts() const { return div_ceil(count, part); }
  Range at(std::int64_t i) const { return {i * part, std::min(part, count - i * part)}; }
};

/// An operand in memory. Its lanes are rows of the result for the left operand, columns for the
/// right.
struct Source {
  enum class Along : std::uint8_t { depth, lanes } along;  ///< the contiguous dimension
  Form form;
  DType dtype;
  std::int64_t stride;  ///< elements between rows of memory
};

Source left_source(const ProductShape& shape);
Source right_source(const ProductShape& shape);

/// Packs lanes x depth of the operand `data` to `to`: tiles by lane, then by depth.
void fill(const Kernels& kernels, const Source& source, const void* data, Range lanes, Range depth,
          std::byte* to);

}  // namespace zero::cpu::packed

namespace zero::cpu {

/// A right operand packed once for many products (Right::packed), which read all of it or a part
/// starting at some row and column.
struct PackedRight {
  const std::byte* data = nullptr;
  std::int64_t down = 0;    ///< bytes between rows 32 apart
  std::int64_t across = 0;  ///< bytes between columns 32 apart

  /// Operands::b of a product whose right operand begins at `row` and `column`, multiples of 32.
  const void* from(std::int64_t row, std::int64_t column) const;
};
std::int64_t packed_right_bytes(const ProductShape& shape, const packed::Kernels& kernels);
PackedRight pack_right(const ProductShape& shape, const packed::Kernels& kernels, const void* b,
                       void* to);

/// The layout of a product's right operand: that of its shape, or packed by pack_right(); ldb is
/// then the number of rows of the whole packed operand. `packed_fp32`: by pack_right() of a fp32
/// shape; such a product is by the kernels of fp32, whatever the dtype of its left operand.
enum class Right : std::uint8_t { in_memory, packed, packed_fp32 };

/// A product of one shape by `kernels`, which must outlive it. Every element of the result is one
/// fp32 sum in the order of k (packed::Kernels), rounded once: its bits depend on the kernels only,
/// not on the number of threads or the partition of the work. Operands are packed into the caches
/// piece by piece, transposed if needed, so that weights' gradients run at the rate of the other
/// products; a left operand whose rows are whole cache lines is read in place.
class Product {
 public:
  struct Operands {
    const void* a = nullptr;
    const void* b = nullptr;
    const void* bias = nullptr;
    void* c = nullptr;
    void* scratch = nullptr;
  };
  Product(const ProductShape& shape, int threads, const packed::Kernels& kernels,
          Right right = Right::in_memory);
  void run(const Operands& operands) const;
  std::int64_t scratch_bytes() const;

 private:
  struct Workplace {
    std::byte* slab;  ///< of an unpacked right operand; if held, of its whole depth
    std::byte* left;  ///< of the left operand; panels_ of them if read along the depth
    float* result;    ///< tiles by row, then column; of one call if the depth is not cut
  };
  struct Piece {
    packed::Range rows;
    packed::Range columns;
    std::int64_t part;  ///< of the depth
    bool held;          ///< the right operand is still in the slab
  };
  /// The right operand of a piece, tiles by column, then by depth.
  struct Slab {
    const std::byte* data;
    std::int64_t across;  ///< bytes between columns of tiles
  };

  /// The tiles that matter depend on the rows.
  bool cut_out() const { return shape_.triangle != ProductShape::Triangle::none; }
  bool packs_left() const { return left_.along == packed::Source::Along::lanes; }
  bool may_be_in_place() const { return !packs_left() && shape_.in == kernels_.in_place; }
  std::int64_t thread_bytes() const { return slab_bytes_ + left_bytes_ + result_bytes_; }
  std::int64_t stride() const { return shape_.ldc == 0 ? shape_.n : shape_.ldc; }
  bool shares_columns() const;
  std::int64_t max_depth() const;
  Workplace workplace(void* scratch, std::int64_t thread) const;
  void multiply(const Operands& o, const Workplace& place, const Piece& piece) const;
  Slab slab_of(const Operands& o, const Workplace& place, const Piece& piece) const;
  void multiply_panels(const Operands& o, const Workplace& place, const Slab& slab,
                       const Piece& piece, std::int64_t i, const packed::RowPanel& left) const;
  packed::Tiles wanted_columns(std::int64_t row, const packed::Range& columns) const;
  packed::Tiles filled_depth(std::int64_t row, const packed::Range& depth) const;
  packed::RowPanel packed_panel(const std::byte* packed, std::int64_t panel_bytes) const;
  packed::RowPanel panels(const Operands& o, const Workplace& place, packed::Range rows,
                          packed::Range depth) const;
  float* whole_tiles(const Operands& o, packed::Range rows, packed::Range columns) const;
  packed::PanelProduct::Finish finish_of(const Operands& o, packed::Range rows,
                                         packed::Range columns) const;
  void store(const Operands& o, const float* result, packed::Range rows,
             packed::Range columns) const;

  const ProductShape shape_;
  const packed::Kernels& kernels_;
  const bool packed_;  // the right operand
  const int threads_;
  const packed::Source left_, right_;
  packed::Cut rows_, columns_, depth_;
  bool holds_ = false;           // the right operand's columns, from piece to piece
  std::int64_t panels_ = 1;      // of rows, multiplied at once
  std::int64_t part_bytes_ = 0;  // of a right operand's part of the depth
  std::int64_t slab_bytes_ = 0;
  std::int64_t left_bytes_ = 0;
  std::int64_t result_bytes_ = 0;
};

}  // namespace zero::cpu
