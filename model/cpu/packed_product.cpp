// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#include "model/cpu/packed_product.h"

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdint>

#include "base/checked_math.h"
#include "device/cpu/parallel.h"
#include "model/cpu/packed_kernels.h"

namespace zero::cpu {
namespace {

using packed::kBlock;
using packed::Kernels;
using packed::kResultFloats;

// A piece of the result is computed whole by one thread, out of its second cache: the piece in
// fp32, the right operand's slab and the left one's panel of a stretch of depth.
constexpr std::int64_t kMaxRows = 512;
constexpr std::int64_t kMaxColumns = 512;
constexpr std::int64_t kMaxDepth = 768;
constexpr std::int64_t kMaxPackedColumns = 768;  // where the left operand is packed for each piece
constexpr std::int64_t kMaxPackedDepth = 192;    // where the left operand is packed
constexpr std::int64_t kNarrow = 128;            // columns that do not repay packing
constexpr std::int64_t kPiecesPerThread = 2;     // at least, for a thread that is held up
constexpr std::int64_t kAlignment = 64;          // bytes

std::int64_t blocks(std::int64_t count) { return div_ceil(count, kBlock); }

struct Range {
  std::int64_t begin = 0;
  std::int64_t count = 0;

  Range block(std::int64_t i) const { return blocks(i, 1); }
  Range blocks(std::int64_t i, std::int64_t number) const {
    return {begin + i * kBlock, std::min(number * kBlock, count - i * kBlock)};
  }
};

/// Neighbouring squares, counted from where a piece begins.
struct Squares {
  std::int64_t begin = 0;
  std::int64_t end = 0;
};

/// [0, count) in even parts of whole blocks.
struct Cut {
  std::int64_t count = 0;
  std::int64_t part = 0;

  static Cut even(std::int64_t count, std::int64_t most) {
    const std::int64_t parts = div_ceil(count, most);
    return {count, round_up(div_ceil(count, parts), kBlock)};
  }
  std::int64_t parts() const { return div_ceil(count, part); }
  Range at(std::int64_t i) const { return {i * part, std::min(part, count - i * part)}; }
};

/// An operand in memory. Its lanes are rows of the result if it is the left one, columns if right.
struct Source {
  enum class Along : std::uint8_t { depth, lanes } along;  ///< what lies side by side
  packed::Form form;
  DType dtype;
  std::int64_t stride;  ///< elements between rows of memory
};

Source left_source(const ProductShape& s) {
  const bool plain = s.a == MatrixPlacement::plain;
  const std::int64_t dense = plain ? s.k : s.m;
  return {plain ? Source::Along::depth : Source::Along::lanes,
          plain ? packed::Form::left : packed::Form::left_transposed, s.in,
          s.lda == 0 ? dense : s.lda};
}

Source right_source(const ProductShape& s) {
  const bool plain = s.b == MatrixPlacement::plain;
  const std::int64_t dense = plain ? s.n : s.k;
  return {plain ? Source::Along::lanes : Source::Along::depth,
          plain ? packed::Form::right : packed::Form::right_transposed, s.in,
          s.ldb == 0 ? dense : s.ldb};
}

// Packs lanes x depth, squares by lane, then by depth. Reads memory's rows as far as they go: where
// caches miss, line by line would be three times slower.
void fill(const Kernels& kernels, const Source& source, const void* data, Range lanes, Range depth,
          std::byte* to) {
  const bool along_depth = source.along == Source::Along::depth;
  const Range& outer = along_depth ? lanes : depth;
  const Range& inner = along_depth ? depth : lanes;
  const std::int64_t steps = blocks(depth.count);
  const std::int64_t down = (along_depth ? steps : 1) * kernels.square_bytes;
  const std::int64_t across = (along_depth ? 1 : steps) * kernels.square_bytes;
  for (std::int64_t y = 0; y < blocks(outer.count); ++y) {
    const Range rows = outer.block(y);
    const std::int64_t first = rows.begin * source.stride + inner.begin;
    kernels.pack(source.form,
                 {static_cast<const std::byte*>(data) + first * size_of(source.dtype), source.dtype,
                  source.stride, rows.count, inner.count},
                 to + y * down, across);
  }
}

class PackedProduct final : public Product {
 public:
  PackedProduct(const ProductShape& shape, int threads, const Kernels& kernels, Right right)
      : shape_(shape),
        kernels_(kernels),
        packed_(right == Right::packed),
        threads_(threads),
        left_(left_source(shape)),
        right_(right_source(shape)),
        rows_(Cut::even(shape.m, kMaxRows)),
        columns_(Cut::even(shape.n, packs_left() ? kMaxPackedColumns : kMaxColumns)),
        depth_(Cut::even(shape.k, may_be_in_place() ? kMaxDepth : kMaxPackedDepth)) {
    // One thread alone takes what the caches hold: each cut would pack an operand once more.
    const std::int64_t wanted = threads == 1 ? 1 : kPiecesPerThread * threads;
    while (rows_.parts() * columns_.parts() < wanted) {
      Cut& longer = rows_.part >= columns_.part ? rows_ : columns_;
      if (longer.part <= kBlock) break;
      longer = Cut::even(longer.count, longer.part / 2);
    }
    const std::int64_t steps = blocks(depth_.part);
    slab_bytes_ = packed_ ? 0 : blocks(columns_.part) * steps * kernels_.square_bytes;
    panel_bytes_ = (has_panel() ? blocks(rows_.part) : 1) * steps * kernels_.square_bytes;
    const std::int64_t squares =
        depth_.parts() == 1 ? kernels_.squares : blocks(rows_.part) * blocks(columns_.part);
    result_bytes_ = squares * kResultFloats * static_cast<std::int64_t>(sizeof(float));
  }

  void run(const Operands& operands) override {
    const std::int64_t pieces = rows_.parts() * columns_.parts();
    std::atomic<std::int64_t> next = 0;
    parallel_for(threads_, threads_, 1, [&](std::int64_t begin, std::int64_t end) {
      kernels_.begin();
      for (std::int64_t thread = begin; thread < end; ++thread) {
        const Workplace place = workplace(operands.scratch, thread);
        for (std::int64_t i = next.fetch_add(1); i < pieces; i = next.fetch_add(1)) {
          Piece piece{rows_.at(i % rows_.parts()), columns_.at(i / rows_.parts()), 0};
          for (; piece.part < depth_.parts(); ++piece.part) multiply(operands, place, piece);
        }
      }
      kernels_.end();
    });
  }

  std::int64_t scratch_bytes() const override { return threads_ * thread_bytes() + kAlignment; }

 private:
  struct Workplace {
    std::byte* slab;   ///< of the right operand, where it is not packed
    std::byte* panel;  ///< of the left operand; of 32 rows where it is read along the depth
    float* result;  ///< squares by row, then by column; those of one call if the depth is not cut
  };
  struct Piece {
    Range rows;
    Range columns;
    std::int64_t part;  ///< of the depth
  };
  /// The right operand of a piece, squares by column, then by depth.
  struct Slab {
    const std::byte* data;
    std::int64_t across;  ///< bytes between columns of squares
  };

  bool has_panel() const { return left_.along == Source::Along::lanes; }
  bool narrow_in_place() const {
    return kernels_.left_in_place == Kernels::InPlace::narrow && shape_.in == DType::fp32 &&
           shape_.n <= kNarrow;
  }
  bool packs_left() const {
    return kernels_.left_in_place == Kernels::InPlace::narrow && !narrow_in_place();
  }
  bool may_be_in_place() const { return !has_panel() && !packs_left(); }
  std::int64_t thread_bytes() const { return slab_bytes_ + panel_bytes_ + result_bytes_; }

  Workplace workplace(void* scratch, std::int64_t thread) const {
    const auto address = reinterpret_cast<std::intptr_t>(scratch);
    const std::int64_t skip = round_up(address, kAlignment) - address;
    std::byte* base = static_cast<std::byte*>(scratch) + skip + thread * thread_bytes();
    return {base, base + slab_bytes_, reinterpret_cast<float*>(base + slab_bytes_ + panel_bytes_)};
  }

  void multiply(const Operands& o, const Workplace& place, const Piece& piece) const {
    const Range depth = depth_.at(piece.part);
    const Slab slab = slab_of(o, place, piece);
    if (has_panel()) fill(kernels_, left_, o.a, piece.rows, depth, place.panel);
    for (std::int64_t i = 0; i < blocks(piece.rows.count); ++i) {
      const packed::LeftStrip left = has_panel() ? panel_strip(place, i * blocks(depth.count))
                                                 : strip(o, place, piece.rows.block(i), depth);
      multiply_strip(o, place, slab, piece, i, left);
    }
  }

  Slab slab_of(const Operands& o, const Workplace& place, const Piece& piece) const {
    const Range depth = depth_.at(piece.part);
    if (packed_) {
      const PackedRight all{static_cast<const std::byte*>(o.b), kernels_.square_bytes,
                            blocks(shape_.ldb) * kernels_.square_bytes};
      return {static_cast<const std::byte*>(all.from(depth.begin, piece.columns.begin)),
              all.across};
    }
    fill(kernels_, right_, o.b, piece.columns, depth, place.slab);
    return {place.slab, blocks(depth.count) * kernels_.square_bytes};
  }

  // The rows of block `i` of the piece times the slab.
  void multiply_strip(const Operands& o, const Workplace& place, const Slab& slab,
                      const Piece& piece, std::int64_t i, const packed::LeftStrip& left) const {
    using Start = packed::StripProduct::Start;
    const bool first = piece.part == 0;
    const bool last = piece.part + 1 == depth_.parts();
    const std::int64_t across = blocks(piece.columns.count);
    const Range rows = piece.rows.block(i);
    const Squares wanted = wanted_columns(rows.begin, piece.columns);
    const Squares filled = filled_depth(rows.begin, depth_.at(piece.part));
    for (std::int64_t j = wanted.begin; j < wanted.end; j += kernels_.squares) {
      const std::int64_t squares = std::min(kernels_.squares, wanted.end - j);
      const Range columns = piece.columns.blocks(j, squares);
      float* in_place = first && last ? whole_squares(o, rows, columns) : nullptr;
      float* aside = place.result + (first && last ? 0 : (i * across + j) * kResultFloats);
      kernels_.multiply(
          {.left = from_step(left, filled.begin),
           .right = slab.data + j * slab.across + filled.begin * kernels_.square_bytes,
           .right_across = slab.across,
           .steps = filled.end - filled.begin,
           .squares = squares,
           .rows = rows.count,
           .result = in_place != nullptr ? in_place : aside,
           .result_across = in_place != nullptr ? kBlock : kResultFloats,
           .result_stride = in_place != nullptr ? stride() : kBlock,
           .start = first ? Start::zero : Start::result});
      if (!last || in_place != nullptr) continue;
      for (std::int64_t square = 0; square < squares; ++square) {
        store(o, aside + square * kResultFloats, rows, columns.block(square));
      }
    }
  }

  // Of the squares of `range`, those that matter to rows `row` to `row` + kBlock of a triangle.
  static Squares above(std::int64_t row, const Range& range) {
    const std::int64_t all = blocks(range.count);
    return {std::clamp((row - range.begin) / kBlock, std::int64_t{0}, all), all};
  }
  static Squares below(std::int64_t row, std::int64_t shift, const Range& range) {
    const std::int64_t columns = row + kBlock + std::max(shift, std::int64_t{0}) - range.begin;
    return {0, std::clamp(div_ceil(std::max(columns, std::int64_t{0}), kBlock), std::int64_t{0},
                          blocks(range.count))};
  }
  Squares wanted_columns(std::int64_t row, const Range& columns) const {
    using Triangle = ProductShape::Triangle;
    if (shape_.triangle == Triangle::c_upper) return above(row, columns);
    if (shape_.triangle == Triangle::c_lower) return below(row, shape_.n - shape_.m, columns);
    return {0, blocks(columns.count)};
  }
  Squares filled_depth(std::int64_t row, const Range& depth) const {
    using Triangle = ProductShape::Triangle;
    if (shape_.triangle == Triangle::a_upper) return above(row, depth);
    if (shape_.triangle == Triangle::a_lower) return below(row, shape_.k - shape_.m, depth);
    return {0, blocks(depth.count)};
  }

  static packed::LeftStrip from_step(packed::LeftStrip left, std::int64_t step) {
    left.upper += step * left.step_bytes;
    left.lower += step * left.step_bytes;
    return left;
  }
  packed::LeftStrip panel_strip(const Workplace& place, std::int64_t squares) const {
    const std::byte* packed = place.panel + squares * kernels_.square_bytes;
    const std::int64_t row_bytes = kernels_.left_bytes;
    return {packed, packed + kBlock / 2 * row_bytes, row_bytes, kernels_.square_bytes};
  }

  // Rows that lie along the depth: in place, where whole squares can be read in whole lines.
  packed::LeftStrip strip(const Operands& o, const Workplace& place, Range rows,
                          Range depth) const {
    const std::int64_t element = size_of(shape_.in);
    const std::int64_t row_bytes = left_.stride * element;
    const auto* first =
        static_cast<const std::byte*>(o.a) + rows.begin * row_bytes + depth.begin * element;
    if (may_be_in_place() && rows.count == kBlock && depth.count % kBlock == 0 &&
        row_bytes % kAlignment == 0 && reinterpret_cast<std::uintptr_t>(first) % kAlignment == 0) {
      return {first, first + kBlock / 2 * row_bytes, row_bytes, kBlock * element};
    }
    fill(kernels_, left_, o.a, rows, depth, place.panel);
    return panel_strip(place, 0);
  }

  std::int64_t stride() const { return shape_.ldc == 0 ? shape_.n : shape_.ldc; }

  // Where squares of the result can be left as kernels leave them; none where there is more to do.
  float* whole_squares(const Operands& o, Range rows, Range columns) const {
    if (shape_.out != DType::fp32 || shape_.write == Write::add ||
        shape_.epilogue != ProductShape::Epilogue::none || rows.count < kBlock ||
        columns.count % kBlock != 0 || stride() * 4 % kAlignment != 0) {
      return nullptr;
    }
    float* first = static_cast<float*>(o.c) + rows.begin * stride() + columns.begin;
    return reinterpret_cast<std::uintptr_t>(first) % kAlignment == 0 ? first : nullptr;
  }

  void store(const Operands& o, const float* result, Range rows, Range columns) const {
    using Mode = packed::Destination::Mode;
    const std::int64_t first = rows.begin * stride() + columns.begin;
    const auto* bias = static_cast<const std::byte*>(o.bias);
    const bool biased = shape_.epilogue == ProductShape::Epilogue::bias;
    kernels_.store(result, {.data = static_cast<std::byte*>(o.c) + first * size_of(shape_.out),
                            .dtype = shape_.out,
                            .stride = stride(),
                            .rows = rows.count,
                            .columns = columns.count,
                            .bias = biased ? bias + columns.begin * size_of(shape_.in) : nullptr,
                            .bias_dtype = shape_.in,
                            .mode = shape_.write == Write::add ? Mode::add : Mode::overwrite});
  }

  const ProductShape shape_;
  const Kernels& kernels_;
  const bool packed_;  // the right operand
  const int threads_;
  const Source left_, right_;
  Cut rows_, columns_, depth_;
  std::int64_t slab_bytes_ = 0;
  std::int64_t panel_bytes_ = 0;
  std::int64_t result_bytes_ = 0;
};

}  // namespace

std::unique_ptr<Product> make_packed_product(const ProductShape& shape, int threads,
                                             const packed::Kernels& kernels, Right right) {
  return std::make_unique<PackedProduct>(shape, threads, kernels, right);
}

const void* PackedRight::from(std::int64_t row, std::int64_t column) const {
  return data + row / kBlock * down + column / kBlock * across;
}

std::int64_t packed_right_bytes(const ProductShape& shape, const Kernels& kernels) {
  return blocks(shape.n) * blocks(shape.k) * kernels.square_bytes;
}

PackedRight pack_right(const ProductShape& shape, const Kernels& kernels, const void* b, void* to) {
  auto* const data = static_cast<std::byte*>(to);
  fill(kernels, right_source(shape), b, {0, shape.n}, {0, shape.k}, data);
  return {data, kernels.square_bytes, blocks(shape.k) * kernels.square_bytes};
}

}  // namespace zero::cpu
