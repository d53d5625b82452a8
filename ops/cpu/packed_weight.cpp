// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#include "ops/cpu/packed_weight.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <type_traits>
#include <vector>

#include "base/error.h"
#include "base/half.h"
#include "device/cpu/parallel.h"
#include "device/cpu/primitives.h"
#include "ops/cpu/bf16_dot_product.h"
#include "ops/cpu/product_choice.h"
#include "ops/cpu/products.h"
#include "ops/cpu/skinny_product.h"
#include "ops/cpu/typed.h"

namespace zero::cpu {
namespace {

using Square = std::array<float, kSquareCount>;

View floats(const float* data, std::int64_t count) {
  return {const_cast<float*>(data), count, DType::fp32, nullptr};
}
View elements(const void* data, std::int64_t count, DType dtype) {
  return {const_cast<void*>(data), count, dtype, nullptr};
}

template <typename T>
T rounded(float value) {
  if constexpr (std::is_same_v<T, bfloat16>) {
    return to_bfloat16(value);
  } else if constexpr (std::is_same_v<T, float16>) {
    return to_float16(value);
  } else {
    return value;
  }
}

bool plain(const WeightShape& shape) { return shape.format == WeightFormat::plain; }

/// Packs a square of (depth, column), in place.
void pack_square(DType kernel, Square& square) {
  alignas(64) std::array<std::byte, kSquareCount * 4> plain{};
  alignas(64) std::array<std::byte, kSquareCount * 4> packed{};
  convert(floats(square.data(), kSquareCount), elements(plain.data(), kSquareCount, kernel));
  pack_right({.n = kSquare, .k = kSquare, .in = kernel}, plain.data(), packed.data());
  convert(elements(packed.data(), kSquareCount, kernel), floats(square.data(), kSquareCount));
}

/// Where kernels keep the elements of a packed square: found by packing the elements' own indices.
class SquareMap {
 public:
  explicit SquareMap(DType kernel) {
    Square depths{};
    Square columns{};
    for (std::int64_t i = 0; i < kSquareCount; ++i) {
      depths[static_cast<std::size_t>(i)] = static_cast<float>(i / kSquare);
      columns[static_cast<std::size_t>(i)] = static_cast<float>(i % kSquare);
    }
    pack_square(kernel, depths);
    pack_square(kernel, columns);
    for (std::size_t i = 0; i < kSquareCount; ++i) {
      places_.at(static_cast<std::size_t>(depths[i]) * kSquare +
                 static_cast<std::size_t>(columns[i])) = static_cast<std::int64_t>(i);
    }
  }
  std::int64_t place(std::int64_t depth, std::int64_t column) const {
    return places_[static_cast<std::size_t>(depth * kSquare + column)];
  }

  static const SquareMap& of(DType kernel) {
    static const SquareMap fp32(DType::fp32);
    static const SquareMap bf16(product_dtype({.dtype = DType::bf16}));
    return kernel == DType::fp32 ? fp32 : bf16;
  }

 private:
  std::array<std::int64_t, kSquareCount> places_{};
};

/// What `values`, one for each element of the rows, has of the square at (depth, column); `outside`
/// where the rows do not reach.
template <typename T>
std::array<T, kSquareCount> square_of(const WeightRows& rows, std::span<const T> values, T outside,
                                      std::int64_t depth, std::int64_t column) {
  std::array<T, kSquareCount> square{};
  square.fill(outside);
  const std::int64_t depths = std::min(kSquare, rows.depth_end() - depth);
  const std::int64_t columns = std::min(kSquare, rows.column_end() - column);
  for (std::int64_t i = 0; i < depths; ++i) {
    for (std::int64_t j = 0; j < columns; ++j) {
      square[static_cast<std::size_t>(i * kSquare + j)] =
          values[rows.element_at(depth + i, column + j)];
    }
  }
  return square;
}

/// Where codes lie in a square of them.
class CodePlaces {
 public:
  explicit CodePlaces(const StoredSquares& stored)
      : map_(SquareMap::of(product_dtype({.dtype = stored.dtype}))),
        bytes_(stored.format == WeightFormat::int8),
        pairs_(kernels_of(stored.dtype) != KernelKind::floats) {}

  PairPlace at(std::int64_t depth, std::int64_t column) const {
    if (pairs_) {
      return pair_place(bytes_ ? Bf16DotProduct::Levels::int8 : Bf16DotProduct::Levels::bits4,
                        depth, column);
    }
    if (bytes_) return {map_.place(depth, column), false};
    return {depth * (kSquare / 2) + column % (kSquare / 2), column >= kSquare / 2};
  }

 private:
  const SquareMap& map_;
  bool bytes_;
  bool pairs_;
};

/// Stores a square of codes (depth, column).
void store_codes(const CodePlaces& places, WeightFormat format,
                 const std::array<std::uint8_t, kSquareCount>& square, std::byte* to) {
  for (std::int64_t i = 0; i < kSquareCount; ++i) {
    const auto [at, high] = places.at(i / kSquare, i % kSquare);
    const auto code = static_cast<std::byte>(square[static_cast<std::size_t>(i)]);
    if (format == WeightFormat::int8) {
      to[at] = code;
    } else {
      const std::byte kept = to[at] & (high ? std::byte{0x0f} : std::byte{0xf0});
      to[at] = kept | (high ? code << 4 : code);
    }
  }
}

/// The level of a code, before its scale.
float code_level(WeightFormat format, const std::byte* square, PairPlace place) {
  if (format == WeightFormat::int8) return static_cast<std::int8_t>(square[place.byte]);
  const auto both = static_cast<unsigned>(square[place.byte]);
  return to_float(code_levels(format)[place.high ? both >> 4U : both & 15U]);
}

}  // namespace

std::int64_t StoredSquares::square_bytes() const {
  switch (format) {
    case WeightFormat::plain:
      return kSquareCount * size_of(dtype);
    case WeightFormat::int8:
      return kSquareCount;
    default:
      return kSquareCount / 2;
  }
}

StoredSquares stored_squares(const WeightShape& shape, const View& weight) {
  StoredSquares stored{static_cast<const std::byte*>(weight.data()), shape.format, shape.dtype,
                       shape.in};
  stored.scales = stored.column(squares(shape.out));
  return stored;
}

Bf16DotProduct pair_rows(const StoredSquares& stored, std::int64_t column) {
  using Levels = Bf16DotProduct::Levels;
  using Scales = Bf16DotProduct::Scales;
  Bf16DotProduct p{.squares = stored.column(column), .steps = stored.steps()};
  if (stored.format == WeightFormat::plain) return p;
  const ColumnScales scales = stored.scales_of(column);
  p.group_steps = scale_group(stored.format) / kSquare;
  if (stored.format == WeightFormat::int8) {
    p.levels = Levels::int8;
    p.scale = Scales::fp32;
    p.scales = scales.of_int8();
    return p;
  }
  p.levels = Levels::bits4;
  p.level_of_code = code_levels(stored.format).data();
  if (stored.format == WeightFormat::q4) {
    p.scale = Scales::fp16;
    p.scales = scales.of_q4(0);
  } else {
    p.scale = Scales::codes;
    p.scales = scales.of_nf4(0);
    p.ranges = &scales.range(0).least;
  }
  return p;
}

std::int64_t packed_bytes(const WeightShape& shape) {
  const StoredSquares stored{nullptr, shape.format, shape.dtype, shape.in};
  return checked_mul(squares(shape.out), stored.steps() * stored.square_bytes() +
                                             ColumnScales::bytes(shape.format, shape.in));
}

WeightCut packed_cut(const WeightShape& shape) {
  const StoredSquares stored{nullptr, shape.format, shape.dtype, shape.in};
  WeightCut cut{kSquare, {stored.steps() * stored.square_bytes()}};
  if (!plain(shape)) cut.part_bytes.push_back(ColumnScales::bytes(shape.format, shape.in));
  return cut;
}

void pack_weight(const WeightShape& shape, std::int64_t first, std::span<const float> values,
                 View weight, int threads) {
  const WeightRows rows{shape, first, std::ssize(values) / shape.file_columns()};
  const DType kernel = product_dtype(shape);
  const StoredSquares stored = stored_squares(shape, weight);
  const std::int64_t begin = rows.column_begin() / kSquare;
  const std::int64_t count = squares(rows.column_end()) - begin;
  parallel_for(threads, count, 1, [&](std::int64_t from, std::int64_t end) {
    for (std::int64_t column = begin + from; column < begin + end; ++column) {
      for (std::int64_t depth = rows.depth_begin(); depth < rows.depth_end(); depth += kSquare) {
        Square square = square_of(rows, values, 0.0F, depth, column * kSquare);
        pack_square(kernel, square);
        convert(floats(square.data(), kSquareCount),
                elements(stored.square(column, depth / kSquare), kSquareCount, shape.dtype));
      }
    }
  });
}

void pack_weight(const QuantizedRows& rows, View weight, int threads) {
  const StoredSquares stored = stored_squares(rows.shape, weight);
  const CodePlaces places(stored);
  const std::int64_t begin = rows.column_begin() / kSquare;
  const std::int64_t count = squares(rows.column_end()) - begin;
  parallel_for(threads, count, 1, [&](std::int64_t from, std::int64_t end) {
    for (std::int64_t column = begin + from; column < begin + end; ++column) {
      store_scales(rows, column * kSquare,
                   const_cast<std::byte*>(stored.scales) +
                       column * ColumnScales::bytes(rows.shape.format, rows.shape.in));
      for (std::int64_t depth = rows.depth_begin(); depth < rows.depth_end(); depth += kSquare) {
        store_codes(places, rows.shape.format,
                    square_of(rows, std::span(rows.codes), zero_code(rows.shape.format), depth,
                              column * kSquare),
                    const_cast<std::byte*>(stored.square(column, depth / kSquare)));
      }
    }
  });
}

void widen_columns(const WeightShape& shape, const View& weight, std::int64_t first,
                   std::int64_t count, std::byte* to) {
  const DType kernel = product_dtype(shape);
  const StoredSquares stored = stored_squares(shape, weight);
  if (plain(shape)) {
    const std::int64_t all = count * stored.steps() * kSquareCount;
    convert(elements(stored.column(first), all, shape.dtype), elements(to, all, kernel));
    return;
  }
  if (kernel == DType::fp32 && has_few_rows()) {
    return widen_codes(stored, first, first + count, reinterpret_cast<float*>(to));
  }
  if (kernel == DType::bf16) {
    for (std::int64_t i = 0; i < count; ++i) {
      widen_pairs(pair_rows(stored, first + i), to + i * stored.steps() * kSquareCount * 2);
    }
    return;
  }
  const SquareMap& map = SquareMap::of(kernel);
  const CodePlaces places(stored);
  auto* value = reinterpret_cast<float*>(to);
  for (std::int64_t column = first; column < first + count; ++column) {
    const ColumnScales scales = stored.scales_of(column);
    const std::byte* square = stored.column(column);
    for (std::int64_t step = 0; step < stored.steps();
         ++step, square += stored.square_bytes(), value += kSquareCount) {
      const std::int64_t group = scales.group_of(step * kSquare);
      for (std::int64_t j = 0; j < kSquare; ++j) {
        const float scale = scales.scale(group, j);
        for (std::int64_t depth = 0; depth < kSquare; ++depth) {
          value[map.place(depth, j)] =
              code_level(shape.format, square, places.at(depth, j)) * scale;
        }
      }
    }
  }
}

void gather_columns(const WeightShape& shape, const View& weight,
                    std::span<const std::int32_t> tokens, View x) {
  const SquareMap& map = SquareMap::of(product_dtype(shape));
  const StoredSquares stored = stored_squares(shape, weight);
  const CodePlaces places(stored);
  with_type(shape.dtype, [&](auto type) {
    using T = typename decltype(type)::type;
    T* to = static_cast<T*>(x.data());
    for (const std::int32_t token : tokens) {
      const ColumnScales scales = stored.scales_of(token / kSquare);
      const std::byte* const column = stored.column(token / kSquare);
      const std::int64_t j = token % kSquare;
      for (std::int64_t depth = 0; depth < shape.in; ++depth) {
        const std::byte* const square = column + depth / kSquare * stored.square_bytes();
        const std::int64_t i = depth % kSquare;
        *to++ = plain(shape) ? reinterpret_cast<const T*>(square)[map.place(i, j)]
                             : rounded<T>(code_level(shape.format, square, places.at(i, j)) *
                                          scales.scale(scales.group_of(depth), j));
      }
    }
  });
}

}  // namespace zero::cpu
