// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#include "inference/cpu/weight_products.h"

#include <algorithm>
#include <atomic>

#include "base/checked_math.h"
#include "base/error.h"
#include "device/cpu/parallel.h"
#include "device/cpu/primitives.h"
#include "inference/cpu/few_rows.h"
#include "inference/cpu/packed_weight.h"
#include "model/cpu/packed_kernels.h"

namespace zero::cpu {
namespace {

constexpr std::int64_t kAlignment = 64;  // bytes
// A strip of columns, which one thread multiplies at a time: whole groups of three squares. Wider
// strips pack x less often; a strip's widened copy stays in the cache.
constexpr std::int64_t kStrip = 192;
constexpr std::int64_t kWidest = 4 * kStrip;
constexpr std::int64_t kWidenedBytes = std::int64_t{2} << 20;
constexpr std::int64_t kManyRows = 64;
constexpr std::int64_t kStripsPerThread = 2;  // at least, to balance a delayed thread
// A few rows: columns of squares that a thread takes at a time, fewer of a small matrix, so that no
// thread waits long for the last one.
constexpr std::int64_t kColumnsAtATime = 4;
constexpr std::int64_t kPartsPerThread = 8;

bool by_floats(const WeightShape& shape) { return product_dtype(shape) == DType::fp32; }
bool by_few_rows(const WeightShape& shape) {
  return by_floats(shape) ? has_few_rows() : name_of_kernels(shape.dtype) == "pairs";
}
// multiply_few_rows() of a weight that pairs of bf16 read.
void multiply_by_pairs(const FewRows& p, std::int64_t begin, std::int64_t end) {
  const packed::Kernels& kernels = *packed::pair_kernels();
  const std::int64_t row_bytes = p.weight.steps() * kSquare * 2;
  for (std::int64_t column = begin; column < end; column += kernels.squares) {
    kernels.multiply({.left = {.upper = static_cast<const std::byte*>(p.x),
                               .row_bytes = row_bytes,
                               .step_bytes = kSquare * 2},
                      .right = p.weight.column(column),
                      .right_across = p.weight.steps() * p.weight.square_bytes(),
                      .steps = p.weight.steps(),
                      .squares = std::min(kernels.squares, end - column),
                      .rows = p.rows,
                      .result = p.sums + column * p.rows * kSquare,
                      .result_across = p.rows * kSquare,
                      .finish = {}});
  }
}

// Whether stored squares are other than those that products of many rows read.
bool widened(const WeightShape& shape) {
  return shape.format != WeightFormat::plain || shape.dtype != product_dtype(shape);
}

std::int64_t strip_columns(const WeightShape& shape, std::int64_t rows, int threads) {
  if (rows < kManyRows) return kStrip;
  const std::int64_t fair = shape.out / (kStripsPerThread * threads);
  const std::int64_t cached = widened(shape) ? kWidenedBytes / (4 * shape.in) : kWidest;
  return std::max(kStrip, std::min({fair, cached, kWidest}) / kStrip * kStrip);
}

}  // namespace

WeightProducts::WeightProducts(int threads) : threads_(threads) {
  for (int i = 0; i < threads; ++i) products_.push_back(std::make_unique<Products>(1));
}

std::int64_t WeightProducts::few_bytes(const WeightShape& shape, std::int64_t rows) const {
  const StoredSquares stored{nullptr, shape.format, shape.dtype, shape.in};
  const std::int64_t x = squares(shape.in) * size_of(product_dtype(shape));
  return rows * kSquare * (x + 4 * squares(shape.out)) +
         threads_ * FewRows::scratch_bytes(stored, rows);
}

void WeightProducts::prepare(const WeightShape& shape, std::int64_t rows) {
  if (by_few_rows(shape)) {
    few_bytes_ = std::max(few_bytes_, few_bytes(shape, std::min(rows, FewRows::kMost)));
    if (rows <= FewRows::kMost) return;
  }
  const View bias(nullptr, shape.out, shape.dtype, nullptr);
  // Fewer rows take no more scratch, in strips of the same width.
  for (const std::int64_t most : {std::min(rows, kManyRows - 1), rows}) {
    const std::int64_t strip = strip_columns(shape, most, threads_);
    if (widened(shape)) {
      widened_bytes_ = std::max(widened_bytes_, squares(strip) * squares(shape.in) * kSquareCount *
                                                    size_of(product_dtype(shape)));
    }
    for (std::int64_t thread = 0; thread < threads_; ++thread) {
      for (const std::int64_t columns : {std::min(strip, shape.out), shape.out % strip}) {
        if (columns == 0) continue;
        for (const DType out : {shape.dtype, DType::fp32}) {
          const Operands operands{{}, {}, bias, View(nullptr, 1, out, nullptr)};
          const Product& product =
              strip_product(shape, padded_rows(most), columns, operands, thread);
          strip_bytes_ = std::max(strip_bytes_, product.scratch_bytes());
        }
      }
    }
  }
}

std::int64_t WeightProducts::scratch_bytes() const {
  const std::int64_t strips =
      threads_ * (round_up(widened_bytes_, kAlignment) + round_up(strip_bytes_, kAlignment));
  return std::max(few_bytes_, strips);
}

void WeightProducts::multiply(const WeightShape& shape, std::int64_t rows, const Operands& o) {
  if (by_few_rows(shape) && rows <= FewRows::kMost) {
    multiply_few(shape, rows, o);
  } else {
    multiply_strips(shape, rows, o);
  }
}

void WeightProducts::multiply_few(const WeightShape& shape, std::int64_t rows,
                                  const Operands& o) const {
  const DType dtype = product_dtype(shape);
  const std::int64_t row_bytes = squares(shape.in) * kSquare * size_of(dtype);
  const std::int64_t filled = shape.in * size_of(dtype);
  for (std::int64_t row = 0; row < rows; ++row) {
    std::byte* const x = o.scratch + row * row_bytes;
    convert(o.x.slice(row * shape.in, shape.in), View(x, shape.in, dtype, nullptr));
    std::fill(x + filled, x + row_bytes, std::byte{0});
  }
  auto* const sums = reinterpret_cast<float*>(o.scratch + rows * row_bytes);
  const FewRows product{
      .x = o.scratch, .rows = rows, .weight = stored_squares(shape, o.weight), .sums = sums};
  const packed::Kernels& kernels =
      by_floats(shape) ? packed::float_kernels() : *packed::pair_kernels();
  const std::int64_t all = squares(shape.out);
  const std::int64_t part =
      std::clamp<std::int64_t>(all / (kPartsPerThread * threads_), 1, kColumnsAtATime);
  std::atomic<std::int64_t> next = 0;
  auto* const scratch = reinterpret_cast<std::byte*>(sums + rows * kSquare * all);
  const std::int64_t each = FewRows::scratch_bytes(product.weight, rows);
  parallel_for(threads_, threads_, 1, [&](std::int64_t thread, std::int64_t) {
    for (std::int64_t i = next.fetch_add(part); i < all; i = next.fetch_add(part)) {
      const std::int64_t end = std::min(all, i + part);
      if (by_floats(shape)) {
        multiply_few_rows(product, i, end, scratch + thread * each);
      } else {
        multiply_by_pairs(product, i, end);
      }
      for (std::int64_t column = i; column < end; ++column) {
        const std::int64_t first = column * kSquare;
        kernels.store(product.sums + first * rows,
                      {.data = static_cast<std::byte*>(o.y.data()) + first * size_of(o.y.dtype()),
                       .dtype = o.y.dtype(),
                       .stride = shape.out,
                       .rows = rows,
                       .columns = std::min(kSquare, shape.out - first),
                       .bias = o.bias.empty() ? nullptr : o.bias.slice(first, 1).data(),
                       .bias_dtype = o.bias.dtype()});
      }
    }
  });
}

Product& WeightProducts::strip_product(const WeightShape& shape, std::int64_t rows,
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

void WeightProducts::multiply_strips(const WeightShape& shape, std::int64_t rows,
                                     const Operands& o) {
  const std::int64_t many = rows < kRowsAtATime ? rows : padded_rows(rows);
  const std::int64_t strip = strip_columns(shape, rows, threads_);
  const std::int64_t widening = round_up(widened_bytes_, kAlignment);
  const std::int64_t each = widening + round_up(strip_bytes_, kAlignment);
  std::atomic<std::int64_t> next = 0;
  parallel_for(threads_, threads_, 1, [&](std::int64_t thread, std::int64_t) {
    std::byte* const scratch = o.scratch + thread * each;
    for (std::int64_t first = next.fetch_add(strip); first < shape.out;
         first = next.fetch_add(strip)) {
      const std::int64_t columns = std::min(strip, shape.out - first);
      const std::byte* right = stored_squares(shape, o.weight).column(first / kSquare);
      if (widened(shape)) {
        widen_columns(shape, o.weight, first / kSquare, squares(columns), scratch);
        right = scratch;
      }
      Product& product = strip_product(shape, many, columns, o, thread);
      ZERO_CHECK(product.scratch_bytes() <= strip_bytes_,
                 "linear: {} rows need {} bytes of scratch, {} are prepared", rows,
                 product.scratch_bytes(), strip_bytes_);
      product.run({.a = o.x.data(),
                   .b = right,
                   .bias = o.bias.empty() ? nullptr : o.bias.slice(first, 1).data(),
                   .c = static_cast<std::byte*>(o.y.data()) + first * size_of(o.y.dtype()),
                   .scratch = scratch + widening});
    }
  });
}

}  // namespace zero::cpu
