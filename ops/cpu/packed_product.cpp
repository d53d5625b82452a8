// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#include "ops/cpu/packed_product.h"

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdint>

#include "base/checked_math.h"
#include "device/cpu/parallel.h"
#include "ops/cpu/packed_kernels.h"

namespace zero::cpu::packed {

Source left_source(const ProductShape& s) {
  const bool plain = s.a == MatrixPlacement::plain;
  const std::int64_t dense = plain ? s.k : s.m;
  return {plain ? Source::Along::depth : Source::Along::lanes,
          plain ? Form::left : Form::left_transposed, s.in, s.lda == 0 ? dense : s.lda};
}

Source right_source(const ProductShape& s) {
  const bool plain = s.b == MatrixPlacement::plain;
  const std::int64_t dense = plain ? s.n : s.k;
  return {plain ? Source::Along::lanes : Source::Along::depth,
          plain ? Form::right : Form::right_transposed, s.in, s.ldb == 0 ? dense : s.ldb};
}

// Reads whole rows of memory: on cache misses, reading line by line would be three times slower.
void fill(const Kernels& kernels, const Source& source, const void* data, Range lanes, Range depth,
          std::byte* to) {
  const bool along_depth = source.along == Source::Along::depth;
  const Range& outer = along_depth ? lanes : depth;
  const Range& inner = along_depth ? depth : lanes;
  const std::int64_t depth_tiles = count_tiles(depth.count);
  const std::int64_t down = (along_depth ? depth_tiles : 1) * kernels.tile_bytes;
  const std::int64_t across = (along_depth ? 1 : depth_tiles) * kernels.tile_bytes;
  for (std::int64_t y = 0; y < count_tiles(outer.count); ++y) {
    const Range rows = outer.tile(y);
    const std::int64_t first = rows.begin * source.stride + inner.begin;
    kernels.pack(source.form,
                 {static_cast<const std::byte*>(data) + first * size_of(source.dtype), source.dtype,
                  source.stride, rows.count, inner.count},
                 to + y * down, across);
  }
}

}  // namespace zero::cpu::packed

namespace zero::cpu {
namespace {

using packed::Cut;
using packed::fill;
using packed::Kernels;
using packed::Range;
using packed::Source;
using packed::Tiles;

// One thread computes a whole piece of the result. If panels do not share columns, its L2 cache
// holds the piece in fp32 and, for a part of the depth, the right operand's slab and the left
// operand's panel.
constexpr std::int64_t kMaxRows = 512;
constexpr std::int64_t kMaxColumns = 512;
constexpr std::int64_t kMaxDepth = 768;
constexpr std::int64_t kMaxPackedDepth = 192;  // if the left operand is always packed
// If panels share columns, the piece stays in the L3 cache. One with more columns packs less of the
// left operand, one with more rows less of the right one. A piece whose left operand may be in
// place is cut to few columns first, then into rows.
constexpr std::int64_t kMaxSharedRows = 2048;
constexpr std::int64_t kMaxSharedColumns = 1536;
constexpr std::int64_t kMaxPiece = 1024 * 1536;  // elements
constexpr std::int64_t kFewColumns = 384;
constexpr std::int64_t kMaxHeld = 4 << 20;    // bytes of a right operand that pieces share
constexpr std::int64_t kNarrow = 128;         // columns, at most, that panels do not share
constexpr std::int64_t kPiecesPerThread = 2;  // at least, to balance a delayed thread
constexpr std::int64_t kCrowded = 8192;  // rows at multiples of these bytes fall on few sets of L2
constexpr std::int64_t kAlignment = 64;  // bytes

// Of the tiles of `range`, those that matter to rows `row` to `row` + kTile of a triangle.
Tiles above(std::int64_t row, const Range& range) {
  const std::int64_t all = count_tiles(range.count);
  return {std::clamp((row - range.begin) / kTile, std::int64_t{0}, all), all};
}

Tiles below(std::int64_t row, std::int64_t shift, const Range& range) {
  const std::int64_t columns = row + kTile + std::max(shift, std::int64_t{0}) - range.begin;
  return {0, std::clamp(div_ceil(std::max(columns, std::int64_t{0}), kTile), std::int64_t{0},
                        count_tiles(range.count))};
}

packed::RowPanel from_tile(packed::RowPanel left, std::int64_t step) {
  left.upper += step * left.tile_bytes;
  left.lower += step * left.tile_bytes;
  return left;
}

}  // namespace

Product::Product(const ProductShape& shape, int threads, const Kernels& kernels, Right right)
    : shape_(shape),
      kernels_(kernels),
      packed_(right == Right::packed),
      threads_(threads),
      left_(packed::left_source(shape)),
      right_(packed::right_source(shape)),
      rows_(Cut::even(shape.m, shares_columns() ? kMaxSharedRows : kMaxRows)),
      columns_(Cut::even(shape.n, shares_columns() ? kMaxSharedColumns : kMaxColumns)),
      depth_(Cut::even(shape.k, max_depth())) {
  // A single thread takes the largest pieces that fit the caches, because every cut packs an
  // operand again.
  const std::int64_t wanted = threads == 1 ? 1 : kPiecesPerThread * threads;
  const bool rows_first = shares_columns() && may_be_in_place();
  while (rows_.parts() * columns_.parts() < wanted || rows_.part * columns_.part > kMaxPiece) {
    const std::int64_t most = rows_first ? std::min(rows_.part, kFewColumns) : rows_.part;
    Cut& cut = columns_.part > most ? columns_ : rows_;
    if (cut.part <= kTile) break;
    cut = Cut::even(cut.count, cut.part / 2);
  }
  const std::int64_t depth_tiles = count_tiles(depth_.part);
  part_bytes_ = count_tiles(columns_.part) * depth_tiles * kernels_.tile_bytes;
  const std::int64_t whole = part_bytes_ * depth_.parts();
  holds_ = !packed_ && !packs_left() && rows_.parts() > threads && whole <= kMaxHeld;
  slab_bytes_ = packed_ ? 0 : holds_ ? whole : part_bytes_;
  panels_ = std::min(cut_out() ? 1 : kernels_.panels, count_tiles(rows_.part));
  left_bytes_ =
      (packs_left() ? count_tiles(rows_.part) : panels_) * depth_tiles * kernels_.tile_bytes;
  const std::int64_t tiles = depth_.parts() == 1
                                 ? panels_ * kernels_.tiles
                                 : count_tiles(rows_.part) * count_tiles(columns_.part);
  result_bytes_ = tiles * kTileElements * static_cast<std::int64_t>(sizeof(float));
}

void Product::run(const Operands& operands) const {
  const std::int64_t pieces = rows_.parts() * columns_.parts();
  std::atomic<std::int64_t> next = 0;
  parallel_for(threads_, threads_, 1, [&](std::int64_t begin, std::int64_t end) {
    kernels_.begin();
    for (std::int64_t thread = begin; thread < end; ++thread) {
      const Workplace place = workplace(operands.scratch, thread);
      std::int64_t held = -1;  // the piece whose columns are in the slab
      for (std::int64_t i = next.fetch_add(1); i < pieces; i = next.fetch_add(1)) {
        const std::int64_t column = i / rows_.parts();
        Piece piece{rows_.at(i % rows_.parts()), columns_.at(column), 0, holds_ && held == column};
        held = column;
        for (; piece.part < depth_.parts(); ++piece.part) multiply(operands, place, piece);
      }
    }
    kernels_.end();
  });
}

std::int64_t Product::scratch_bytes() const { return threads_ * thread_bytes() + kAlignment; }

bool Product::shares_columns() const {
  const bool narrow = may_be_in_place() && shape_.n <= kNarrow;
  return kernels_.panels > 1 && !narrow && !cut_out();
}

std::int64_t Product::max_depth() const {
  if (shares_columns()) return kernels_.depth;
  return may_be_in_place() ? kMaxDepth : kMaxPackedDepth;
}

Product::Workplace Product::workplace(void* scratch, std::int64_t thread) const {
  const auto address = reinterpret_cast<std::intptr_t>(scratch);
  const std::int64_t skip = round_up(address, kAlignment) - address;
  std::byte* base = static_cast<std::byte*>(scratch) + skip + thread * thread_bytes();
  return {base, base + slab_bytes_, reinterpret_cast<float*>(base + slab_bytes_ + left_bytes_)};
}

void Product::multiply(const Operands& o, const Workplace& place, const Piece& piece) const {
  const Range depth = depth_.at(piece.part);
  const Slab slab = slab_of(o, place, piece);
  if (packs_left()) fill(kernels_, left_, o.a, piece.rows, depth, place.left);
  for (std::int64_t i = 0; i < count_tiles(piece.rows.count); i += panels_) {
    const std::int64_t down = count_tiles(depth.count) * kernels_.tile_bytes;
    const packed::RowPanel left = packs_left()
                                      ? packed_panel(place.left + i * down, down)
                                      : panels(o, place, piece.rows.tiles(i, panels_), depth);
    multiply_panels(o, place, slab, piece, i, left);
  }
}

Product::Slab Product::slab_of(const Operands& o, const Workplace& place,
                               const Piece& piece) const {
  const Range depth = depth_.at(piece.part);
  if (packed_) {
    const PackedRight all{static_cast<const std::byte*>(o.b), kernels_.tile_bytes,
                          count_tiles(shape_.ldb) * kernels_.tile_bytes};
    return {static_cast<const std::byte*>(all.from(depth.begin, piece.columns.begin)), all.across};
  }
  std::byte* const slab = place.slab + (holds_ ? piece.part * part_bytes_ : 0);
  if (!piece.held) fill(kernels_, right_, o.b, piece.columns, depth, slab);
  return {slab, count_tiles(depth.count) * kernels_.tile_bytes};
}

// The panels from block `i` of the piece's rows on times the slab.
void Product::multiply_panels(const Operands& o, const Workplace& place, const Slab& slab,
                              const Piece& piece, std::int64_t i,
                              const packed::RowPanel& left) const {
  using Start = packed::PanelProduct::Start;
  const bool first = piece.part == 0;
  const bool last = piece.part + 1 == depth_.parts();
  const std::int64_t across = count_tiles(piece.columns.count);
  const Range rows = piece.rows.tiles(i, panels_);
  const Tiles wanted = wanted_columns(rows.begin, piece.columns);
  const Tiles filled = filled_depth(rows.begin, depth_.at(piece.part));
  for (std::int64_t j = wanted.begin; j < wanted.end; j += kernels_.tiles) {
    const std::int64_t tiles = std::min(kernels_.tiles, wanted.end - j);
    const Range columns = piece.columns.tiles(j, tiles);
    const packed::PanelProduct::Finish finish =
        last ? finish_of(o, rows, columns) : packed::PanelProduct::Finish{};
    float* in_place =
        first && last && finish.data == nullptr ? whole_tiles(o, rows, columns) : nullptr;
    float* aside = place.result + (first && last ? 0 : (i * across + j) * kTileElements);
    const std::int64_t down = (first && last ? tiles : across) * kTileElements;
    kernels_.multiply({.left = from_tile(left, filled.begin),
                       .right = slab.data + j * slab.across + filled.begin * kernels_.tile_bytes,
                       .right_across = slab.across,
                       .depth_tiles = filled.end - filled.begin,
                       .tiles = tiles,
                       .panels = count_tiles(rows.count),
                       .rows = rows.tile(count_tiles(rows.count) - 1).count,
                       .result = in_place != nullptr ? in_place : aside,
                       .result_across = in_place != nullptr ? kTile : kTileElements,
                       .result_down = in_place != nullptr ? kTile * stride() : down,
                       .result_stride = in_place != nullptr ? stride() : kTile,
                       .start = first ? Start::zero : Start::result,
                       .finish = finish});
    if (!last || in_place != nullptr || finish.data != nullptr) continue;
    for (std::int64_t panel = 0; panel < count_tiles(rows.count); ++panel) {
      for (std::int64_t tile = 0; tile < tiles; ++tile) {
        store(o, aside + panel * down + tile * kTileElements, rows.tile(panel), columns.tile(tile));
      }
    }
  }
}

Tiles Product::wanted_columns(std::int64_t row, const Range& columns) const {
  using Triangle = ProductShape::Triangle;
  if (shape_.triangle == Triangle::c_upper) return above(row, columns);
  if (shape_.triangle == Triangle::c_lower) return below(row, shape_.n - shape_.m, columns);
  return {0, count_tiles(columns.count)};
}

Tiles Product::filled_depth(std::int64_t row, const Range& depth) const {
  using Triangle = ProductShape::Triangle;
  if (shape_.triangle == Triangle::a_upper) return above(row, depth);
  if (shape_.triangle == Triangle::a_lower) return below(row, shape_.k - shape_.m, depth);
  return {0, count_tiles(depth.count)};
}

packed::RowPanel Product::packed_panel(const std::byte* packed, std::int64_t panel_bytes) const {
  const std::int64_t row_bytes = kernels_.left_bytes;
  return {packed, packed + kTile / 2 * row_bytes, row_bytes, kernels_.tile_bytes, panel_bytes};
}

// Rows along the depth: read in place if whole tiles consist of whole cache lines, and the rows
// of panels that share columns are not so far apart that they fall on few sets of the L2 cache.
packed::RowPanel Product::panels(const Operands& o, const Workplace& place, Range rows,
                                 Range depth) const {
  const std::int64_t element = size_of(shape_.in);
  const std::int64_t row_bytes = left_.stride * element;
  const bool crowded = shares_columns() && row_bytes % kCrowded == 0;
  const auto* first =
      static_cast<const std::byte*>(o.a) + rows.begin * row_bytes + depth.begin * element;
  if (may_be_in_place() && !crowded && rows.count % kTile == 0 && depth.count % kTile == 0 &&
      row_bytes % kAlignment == 0 && reinterpret_cast<std::uintptr_t>(first) % kAlignment == 0) {
    return {first, first + kTile / 2 * row_bytes, row_bytes, kTile * element, kTile * row_bytes};
  }
  fill(kernels_, left_, o.a, rows, depth, place.left);
  return packed_panel(place.left, count_tiles(depth.count) * kernels_.tile_bytes);
}

// The destination if kernels can write tiles of the result directly; null if more work follows.
float* Product::whole_tiles(const Operands& o, Range rows, Range columns) const {
  if (shape_.out != DType::fp32 || shape_.write == Write::add ||
      shape_.epilogue != ProductShape::Epilogue::none || rows.count % kTile != 0 ||
      columns.count % kTile != 0 || stride() * 4 % kAlignment != 0) {
    return nullptr;
  }
  float* first = static_cast<float*>(o.c) + rows.begin * stride() + columns.begin;
  return reinterpret_cast<std::uintptr_t>(first) % kAlignment == 0 ? first : nullptr;
}

// Without a place if the kernels leave whole tiles of the result to store().
packed::PanelProduct::Finish Product::finish_of(const Operands& o, Range rows,
                                                Range columns) const {
  const bool plain = shape_.epilogue == ProductShape::Epilogue::none;
  if (!kernels_.finishes || shape_.in != DType::fp32 || shape_.out != DType::fp32 ||
      (!plain && shape_.epilogue != ProductShape::Epilogue::bias) || rows.count % kTile != 0 ||
      columns.count % kTile != 0) {
    return {};
  }
  return {.data = static_cast<float*>(o.c) + rows.begin * stride() + columns.begin,
          .stride = stride(),
          .bias = plain ? nullptr : static_cast<const float*>(o.bias) + columns.begin,
          .add = shape_.write == Write::add};
}

void Product::store(const Operands& o, const float* result, Range rows, Range columns) const {
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

const void* PackedRight::from(std::int64_t row, std::int64_t column) const {
  return data + row / kTile * down + column / kTile * across;
}

std::int64_t packed_right_bytes(const ProductShape& shape, const Kernels& kernels) {
  return count_tiles(shape.n) * count_tiles(shape.k) * kernels.tile_bytes;
}

PackedRight pack_right(const ProductShape& shape, const Kernels& kernels, const void* b, void* to) {
  auto* const data = static_cast<std::byte*>(to);
  packed::fill(kernels, packed::right_source(shape), b, {0, shape.n}, {0, shape.k}, data);
  return {data, kernels.tile_bytes, count_tiles(shape.k) * kernels.tile_bytes};
}

}  // namespace zero::cpu
