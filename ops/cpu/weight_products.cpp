// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#include "ops/cpu/weight_products.h"

#include <algorithm>
#include <array>

#include "base/checked_math.h"
#include "base/error.h"
#include "device/cpu/parallel.h"
#include "device/cpu/primitives.h"
#include "ops/cpu/bf16_dot_product.h"
#include "ops/cpu/packed_kernels.h"
#include "ops/cpu/packed_weight.h"
#include "ops/cpu/products.h"
#include "ops/cpu/skinny_product.h"

namespace zero::cpu {
namespace {

constexpr std::int64_t kAlignment = 64;  // bytes
// A block of columns, which one thread multiplies at a time: whole groups of three tiles, which
// floats are multiplied by. Wider blocks read, or pack, x less often; a block's widened copy stays
// in the cache.
constexpr std::int64_t kUnit = 3 * kTile;
constexpr std::int64_t kColumnBlock = 2 * kUnit;
constexpr std::int64_t kWidest = 4 * kColumnBlock;
constexpr std::int64_t kWidenedBytes = std::int64_t{2} << 20;
// From so many rows on, blocks are wider and a thread takes one column of tiles at a time.
constexpr std::int64_t kManyRows = 64;
constexpr std::int64_t kTogether = 512;  // rows of a product, at most: fewer take no more scratch
constexpr std::int64_t kBlocksPerThread = 2;  // at least, to balance a delayed thread
constexpr std::int64_t kColumns = 4;          // of tiles, that a thread takes at a time, at most
constexpr std::int64_t kPartsPerThread = 16;  // of looked-up columns, at least
constexpr std::int64_t kLevelBytes = std::int64_t{256} << 10;  // which the cache holds
// Of a thread: the sums of few rows of as many columns as it takes, or of 32 rows of one.
constexpr std::int64_t kSumBytes = kColumns * SkinnyProduct::kMost * kTile * 4;
static_assert(kSumBytes >= kTileElements * 4);
static_assert(kGroupsOfRange == Bf16DotProduct::kGroupsOfRange);

bool by_floats(const WeightShape& shape) { return product_dtype(shape) == DType::fp32; }
bool coded(const WeightShape& shape) { return shape.format != WeightFormat::plain; }

/// Rows of x in the dtype of products, padded to whole tiles: in place or copied to scratch.
bool in_place(const WeightShape& shape) {
  return shape.in % kTile == 0 && shape.dtype == product_dtype(shape);
}
std::int64_t row_bytes(const WeightShape& shape) {
  return count_tiles(shape.in) * kTile * size_of(product_dtype(shape));
}
std::int64_t copied_bytes(const WeightShape& shape, std::int64_t rows) {
  return in_place(shape) ? 0 : round_up(rows * row_bytes(shape), kAlignment);
}
const std::byte* whole_rows(const WeightShape& shape, std::int64_t rows, const View& x,
                            std::byte* scratch) {
  if (in_place(shape)) return static_cast<const std::byte*>(x.data());
  const DType dtype = product_dtype(shape);
  for (std::int64_t row = 0; row < rows; ++row) {
    std::byte* const to = scratch + row * row_bytes(shape);
    convert(x.slice(row * shape.in, shape.in), View(to, shape.in, dtype, nullptr));
    std::fill(to + shape.in * size_of(dtype), to + row_bytes(shape), std::byte{0});
  }
  return scratch;
}

/// Rounds the sums of rows of a column of tiles into y.
void store_sums(const packed::Kernels& kernels, const WeightShape& shape,
                const WeightProducts::Operands& o, std::int64_t column, std::int64_t row,
                std::int64_t rows, const float* sums) {
  const std::int64_t first = column * kTile;
  kernels.store(sums, {.data = static_cast<std::byte*>(o.y.data()) +
                               (row * shape.out + first) * size_of(o.y.dtype()),
                       .dtype = o.y.dtype(),
                       .stride = shape.out,
                       .rows = rows,
                       .columns = std::min(kTile, shape.out - first),
                       .bias = o.bias.empty() ? nullptr : o.bias.slice(first, 1).data(),
                       .bias_dtype = o.bias.dtype()});
}

std::int64_t level_bytes(const WeightShape& shape) {
  return count_tiles(shape.in) * kTileElements * 2;
}
std::int64_t looked_up_columns(const WeightShape& shape, std::int64_t rows, int threads) {
  if (!coded(shape) || rows <= SkinnyProduct::kMost) return 0;
  const std::int64_t cached = std::max<std::int64_t>(kLevelBytes / level_bytes(shape), 1);
  const std::int64_t fair = count_tiles(shape.out) / (kPartsPerThread * threads);
  return std::min(cached, std::clamp<std::int64_t>(fair, 1, kColumns));
}

// Whether products of many rows read a widened copy of the stored tiles.
bool widened(const WeightShape& shape) {
  return coded(shape) || shape.dtype != product_dtype(shape);
}

// The narrowest blocks: fewer columns if threads would get no block, or a widened copy would not
// fit the cache.
std::int64_t least_columns(const WeightShape& shape, int threads) {
  const std::int64_t unit = by_floats(shape) ? kUnit : kTile;
  const std::int64_t cached = widened(shape) ? kWidenedBytes / 2 / row_bytes(shape) : kColumnBlock;
  return std::clamp(std::min(cached, shape.out / threads) / unit * unit, unit, kColumnBlock);
}
std::int64_t block_columns(const WeightShape& shape, std::int64_t rows, int threads) {
  const std::int64_t least = least_columns(shape, threads);
  if (rows < kManyRows) return least;
  const std::int64_t fair = shape.out / (kBlocksPerThread * threads);
  const std::int64_t cached = widened(shape) ? kWidenedBytes / (4 * shape.in) : kWidest;
  return std::max(least, std::min({fair, cached, kWidest}) / kColumnBlock * kColumnBlock);
}

}  // namespace

WeightProducts::WeightProducts(int threads) : threads_(threads) {
  for (int i = 0; i < threads; ++i) products_.push_back(std::make_unique<Products>(1));
}

std::int64_t WeightProducts::gemv_bytes(const WeightShape& shape, std::int64_t rows) const {
  const StoredTiles stored{shape};
  return copied_bytes(shape, rows) +
         threads_ * (kSumBytes + SkinnyProduct::scratch_bytes(stored, rows));
}
std::int64_t WeightProducts::bf16_dot_bytes(const WeightShape& shape, std::int64_t rows) const {
  const std::int64_t columns = looked_up_columns(shape, rows, threads_);
  return copied_bytes(shape, rows) + threads_ * (kSumBytes + columns * level_bytes(shape));
}

void WeightProducts::prepare(const WeightShape& shape, std::int64_t rows) {
  // A few rows may take another algorithm than more.
  for (const std::int64_t most : {std::min(rows, SkinnyProduct::kMost), rows}) {
    const Algorithm algorithm = algorithm_of(shape, most);
    if (algorithm == Algorithm::gemm) continue;
    column_bytes_ =
        std::max(column_bytes_, algorithm == Algorithm::gemv ? gemv_bytes(shape, most)
                                                             : bf16_dot_bytes(shape, most));
  }
  if (algorithm_of(shape, rows) != Algorithm::gemm) return;
  const View bias(nullptr, shape.out, shape.dtype, nullptr);
  // Fewer rows take no more scratch, in blocks of the same width.
  for (const std::int64_t most : {std::min(rows, kManyRows - 1), std::min(rows, kTogether)}) {
    const std::int64_t block = block_columns(shape, most, threads_);
    if (widened(shape)) {
      widened_bytes_ = std::max(widened_bytes_, count_tiles(block) * count_tiles(shape.in) *
                                                    kTileElements * size_of(product_dtype(shape)));
    }
    for (std::int64_t thread = 0; thread < threads_; ++thread) {
      for (const std::int64_t columns : {std::min(block, shape.out), shape.out % block}) {
        if (columns == 0) continue;
        for (const DType out : {shape.dtype, DType::fp32}) {
          const Operands operands{{}, {}, bias, View(nullptr, 1, out, nullptr)};
          const Product& product =
              block_product(shape, padded_rows(most), columns, operands, thread);
          block_bytes_ = std::max(block_bytes_, product.scratch_bytes());
        }
      }
    }
  }
}

std::int64_t WeightProducts::scratch_bytes() const {
  const std::int64_t blocks =
      threads_ * (round_up(widened_bytes_, kAlignment) + round_up(block_bytes_, kAlignment));
  return std::max(column_bytes_, blocks);
}

void WeightProducts::multiply(const WeightShape& shape, std::int64_t rows, const Operands& o) {
  switch (algorithm_of(shape, rows)) {
    case Algorithm::gemv:
      return multiply_gemv(shape, rows, o);
    case Algorithm::bf16_dot:
      return multiply_bf16_dot(shape, rows, o);
    case Algorithm::gemm:
      return multiply_gemm(shape, rows, o);
  }
}

void WeightProducts::multiply_gemv(const WeightShape& shape, std::int64_t rows,
                                   const Operands& o) const {
  const SkinnyProduct product{
      .x = reinterpret_cast<const float*>(whole_rows(shape, rows, o.x, o.scratch)),
      .rows = rows,
      .weight = stored_tiles(shape, o.weight)};
  const std::int64_t each = kSumBytes + SkinnyProduct::scratch_bytes(product.weight, rows);
  std::byte* const scratch = o.scratch + copied_bytes(shape, rows);
  parallel_shares(threads_, count_tiles(shape.out), kColumns,
                  [&](std::int64_t thread, std::int64_t begin, std::int64_t end) {
                    std::byte* const own = scratch + thread * each;
                    auto* sums = reinterpret_cast<float*>(own);
                    multiply_skinny(product, begin, end, sums, own + kSumBytes);
                    for (std::int64_t column = begin; column < end;
                         ++column, sums += rows * kTile) {
                      store_sums(packed::float_kernels(), shape, o, column, 0, rows, sums);
                    }
                  });
}

void WeightProducts::multiply_bf16_dot(const WeightShape& shape, std::int64_t rows,
                                       const Operands& o) const {
  const StoredTiles stored = stored_tiles(shape, o.weight);
  const std::byte* const x = whole_rows(shape, rows, o.x, o.scratch);
  const std::int64_t looked_up = looked_up_columns(shape, rows, threads_);
  const std::int64_t each = kSumBytes + looked_up * level_bytes(shape);
  std::byte* const scratch = o.scratch + copied_bytes(shape, rows);
  const std::int64_t count = count_tiles(shape.out);
  const std::int64_t together = rows < kManyRows ? kColumns : 1;
  parallel_shares(threads_, count, looked_up > 0 ? looked_up : together,
                  [&](std::int64_t thread, std::int64_t begin, std::int64_t end) {
                    std::byte* const own = scratch + thread * each;
                    auto* const sums = reinterpret_cast<float*>(own);
                    std::array<Bf16DotProduct, kColumns> columns;
                    for (std::int64_t i = 0; i < end - begin; ++i) {
                      Bf16DotProduct& column = columns.at(static_cast<std::size_t>(i));
                      column = bf16_dot_product(stored, begin + i);
                      column.row_bytes = row_bytes(shape);
                      column.sums = sums;
                      if (looked_up == 0) {
                        if (begin + i + 1 < count) column.next = stored.column(begin + i + 1);
                        continue;
                      }
                      std::byte* const levels = own + kSumBytes + i * level_bytes(shape);
                      look_up_pairs(column, levels);
                      column.tiles = levels;
                      column.levels = Bf16DotProduct::Levels::bf16;
                    }
                    for (std::int64_t row = 0; row < rows; row += kTile) {
                      for (std::int64_t i = 0; i < end - begin; ++i) {
                        Bf16DotProduct& column = columns.at(static_cast<std::size_t>(i));
                        column.x = x + row * row_bytes(shape);
                        column.rows = std::min(kTile, rows - row);
                        multiply_bf16(column);
                        store_sums(*packed::pair_kernels(), shape, o, begin + i, row, column.rows,
                                   sums);
                      }
                    }
                  });
}

const Product& WeightProducts::block_product(const WeightShape& shape, std::int64_t rows,
                                             std::int64_t columns, const Operands& o,
                                             std::int64_t thread) {
  using Epilogue = ProductShape::Epilogue;
  return products_[static_cast<std::size_t>(thread)]->get(
      {.m = rows,
       .n = columns,
       .k = shape.in,
       .in = shape.dtype,
       .out = o.y.dtype(),
       .epilogue = o.bias.empty() ? Epilogue::none : Epilogue::bias,
       .ldb = shape.in,
       .ldc = shape.out},
      by_floats(shape) ? Right::packed_fp32 : Right::packed);
}

void WeightProducts::multiply_gemm(const WeightShape& shape, std::int64_t rows, const Operands& o) {
  const std::int64_t many = rows < kRowsAtATime ? rows : padded_rows(rows);
  const std::int64_t block = block_columns(shape, rows, threads_);
  const std::int64_t widening = round_up(widened_bytes_, kAlignment);
  const std::int64_t each = widening + round_up(block_bytes_, kAlignment);
  const auto blocks = [&](std::int64_t thread, std::int64_t begin, std::int64_t last) {
    const std::int64_t first = begin * block;
    const std::int64_t end = std::min(last * block, shape.out);
    std::byte* const scratch = o.scratch + thread * each;
    const std::byte* right = stored_tiles(shape, o.weight).column(first / kTile);
    if (widened(shape)) {
      widen_columns(shape, o.weight, first / kTile, count_tiles(end - first), scratch);
      right = scratch;
    }
    for (std::int64_t row = 0; row < many; row += kTogether) {
      const std::int64_t count = std::min(kTogether, many - row);
      const Product& product = block_product(shape, count, end - first, o, thread);
      ZERO_CHECK(product.scratch_bytes() <= block_bytes_,
                 "linear: {} rows need {} bytes of scratch, {} are prepared", count,
                 product.scratch_bytes(), block_bytes_);
      product.run({.a = o.x.slice(row * shape.in, 1).data(),
                   .b = right,
                   .bias = o.bias.empty() ? nullptr : o.bias.slice(first, 1).data(),
                   .c = o.y.slice(row * shape.out + first, 1).data(),
                   .scratch = scratch + widening});
    }
  };
  parallel_shares(threads_, div_ceil(shape.out, block), 1, blocks);
}

}  // namespace zero::cpu
