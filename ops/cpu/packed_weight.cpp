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
#include "device/cpu/dispatch.h"
#include "device/cpu/parallel.h"
#include "device/cpu/primitives.h"
#include "ops/cpu/bf16_dot_product.h"
#include "ops/cpu/products.h"
#include "ops/cpu/skinny_product.h"

namespace zero::cpu {
namespace {

using FloatTile = std::array<float, kTileElements>;

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

/// Packs a tile of (depth, column), in place.
void pack_tile(DType kernel, FloatTile& tile) {
  alignas(64) std::array<std::byte, kTileElements * 4> plain{};
  alignas(64) std::array<std::byte, kTileElements * 4> packed{};
  convert(floats(tile.data(), kTileElements), elements(plain.data(), kTileElements, kernel));
  pack_right({.n = kTile, .k = kTile, .in = kernel}, plain.data(), packed.data());
  convert(elements(packed.data(), kTileElements, kernel), floats(tile.data(), kTileElements));
}

/// Where kernels keep the elements of a packed tile: found by packing the elements' own indices.
class TileMap {
 public:
  explicit TileMap(DType kernel) {
    FloatTile depths{};
    FloatTile columns{};
    for (std::int64_t i = 0; i < kTileElements; ++i) {
      depths[static_cast<std::size_t>(i)] = static_cast<float>(i / kTile);
      columns[static_cast<std::size_t>(i)] = static_cast<float>(i % kTile);
    }
    pack_tile(kernel, depths);
    pack_tile(kernel, columns);
    for (std::size_t i = 0; i < kTileElements; ++i) {
      places_.at(static_cast<std::size_t>(depths[i]) * kTile +
                 static_cast<std::size_t>(columns[i])) = static_cast<std::int64_t>(i);
    }
  }
  std::int64_t place(std::int64_t depth, std::int64_t column) const {
    return places_[static_cast<std::size_t>(depth * kTile + column)];
  }

  static const TileMap& of(DType kernel) {
    static const TileMap fp32(DType::fp32);
    static const TileMap bf16(product_dtype({.dtype = DType::bf16}));
    return kernel == DType::fp32 ? fp32 : bf16;
  }

 private:
  std::array<std::int64_t, kTileElements> places_{};
};

/// What `values`, one for each element of the rows, has of the tile at (depth, column); `outside`
/// where the rows do not reach.
template <typename T>
std::array<T, kTileElements> tile_of(const WeightRows& rows, std::span<const T> values, T outside,
                                     std::int64_t depth, std::int64_t column) {
  std::array<T, kTileElements> tile{};
  tile.fill(outside);
  const std::int64_t depths = std::min(kTile, rows.depth_end() - depth);
  const std::int64_t columns = std::min(kTile, rows.column_end() - column);
  for (std::int64_t i = 0; i < depths; ++i) {
    for (std::int64_t j = 0; j < columns; ++j) {
      tile[static_cast<std::size_t>(i * kTile + j)] =
          values[rows.element_at(depth + i, column + j)];
    }
  }
  return tile;
}

/// Where codes lie in a tile of them.
class CodePlaces {
 public:
  explicit CodePlaces(const StoredTiles& stored)
      : map_(TileMap::of(product_dtype(stored.shape))),
        bytes_(stored.format() == WeightFormat::int8),
        pairs_(kernels_of(stored.shape.dtype) != KernelKind::floats) {}

  PairPlace at(std::int64_t depth, std::int64_t column) const {
    if (pairs_) {
      return pair_place(bytes_ ? Bf16DotProduct::Levels::int8 : Bf16DotProduct::Levels::bits4,
                        depth, column);
    }
    if (bytes_) return {map_.place(depth, column), false};
    return {depth * (kTile / 2) + column % (kTile / 2), column >= kTile / 2};
  }

 private:
  const TileMap& map_;
  bool bytes_;
  bool pairs_;
};

/// Gives elements behind the last input codes of the value 0: their columns' zero points.
void pad_depth(const QuantizedRows& rows, std::int64_t depth, std::int64_t column,
               std::array<std::uint8_t, kTileElements>& tile) {
  if (rows.zeros.empty() || depth + kTile <= rows.shape.in) return;
  const std::int64_t columns = std::min(kTile, rows.column_end() - column);
  const std::int64_t group = rows.group_end() - 1;
  for (std::int64_t i = rows.shape.in - depth; i < kTile; ++i) {
    for (std::int64_t j = 0; j < columns; ++j) {
      tile[static_cast<std::size_t>(i * kTile + j)] = rows.zero(group, column + j);
    }
  }
}

/// Stores a tile of codes (depth, column).
void store_codes(const CodePlaces& places, WeightFormat format,
                 const std::array<std::uint8_t, kTileElements>& tile, std::byte* to) {
  for (std::int64_t i = 0; i < kTileElements; ++i) {
    const auto [at, high] = places.at(i / kTile, i % kTile);
    const auto code = static_cast<std::byte>(tile[static_cast<std::size_t>(i)]);
    if (format == WeightFormat::int8) {
      to[at] = code;
    } else {
      const std::byte kept = to[at] & (high ? std::byte{0x0f} : std::byte{0xf0});
      to[at] = kept | (high ? code << 4 : code);
    }
  }
}

/// The levels of u4 less zero points, from -16 on.
const std::array<bfloat16, 32>& signed_levels() {
  static const std::array<bfloat16, 32> levels = [] {
    std::array<bfloat16, 32> made{};
    for (std::size_t i = 0; i < made.size(); ++i) {
      made[i] = to_bfloat16(static_cast<float>(i) - 16);
    }
    return made;
  }();
  return levels;
}

/// The level of a code, before its zero point and scale.
float code_level(WeightFormat format, const std::byte* tile, PairPlace place) {
  if (format == WeightFormat::int8) return static_cast<std::int8_t>(tile[place.byte]);
  const auto both = static_cast<unsigned>(tile[place.byte]);
  return to_float(code_levels(format)[place.high ? both >> 4U : both & 15U]);
}

// Stores the scales of 32 columns from `column` on, with their zero points; 0 behind the last.
void store_scales(const QuantizedRows& rows, std::int64_t column, std::byte* to) {
  const WeightFormat format = rows.shape.format;
  const std::int64_t bytes = scale_bytes(format);
  const std::int64_t count = std::min(kTile, rows.column_end() - column);
  for (std::int64_t group = rows.group_begin(); group < rows.group_end(); ++group) {
    std::byte* const scales = to + group * kTile * bytes;
    std::fill_n(scales, kTile * bytes, std::byte{0});
    for (std::int64_t i = 0; i < count; ++i) {
      std::copy_n(rows.scales.data() + rows.scale_at(group, column + i), bytes, scales + i * bytes);
    }
  }
  if (format == WeightFormat::u4) {
    std::byte* const zeros = to + count_groups(rows.shape, rows.shape.in) * kTile * bytes;
    for (std::int64_t group = rows.group_begin(); group < rows.group_end(); ++group) {
      std::fill_n(zeros + group * kTile, kTile, std::byte{0});
      for (std::int64_t i = 0; i < count; ++i) {
        zeros[group * kTile + i] = static_cast<std::byte>(rows.zero(group, column + i));
      }
    }
  }
  if (format != WeightFormat::nf4) return;
  auto* const ranges =
      reinterpret_cast<ScaleRange*>(to + count_groups(format, rows.shape.in) * kTile);
  for (std::int64_t scale_block = rows.scale_block_begin(); scale_block < rows.scale_block_end();
       ++scale_block) {
    ranges[scale_block] = rows.ranges[rows.range_at(scale_block, column)];
  }
}

}  // namespace

StoredTiles stored_tiles(const WeightShape& shape, const View& weight) {
  StoredTiles stored{shape, static_cast<const std::byte*>(weight.data())};
  stored.scales = stored.column(count_tiles(shape.out));
  return stored;
}

Bf16DotProduct bf16_dot_product(const StoredTiles& stored, std::int64_t column) {
  using Levels = Bf16DotProduct::Levels;
  using Scales = Bf16DotProduct::Scales;
  Bf16DotProduct p{.tiles = stored.column(column), .depth_tiles = stored.depth_tiles()};
  if (stored.format() == WeightFormat::plain) return p;
  const ColumnScales scales = stored.scales_of(column);
  p.group_tiles = scale_group(stored.shape) / kTile;
  if (stored.format() == WeightFormat::int8) {
    p.levels = Levels::int8;
    p.scale = Scales::fp32;
    p.scales = scales.of_int8();
    return p;
  }
  if (stored.format() == WeightFormat::u4) {
    p.levels = Levels::bits4_zeros;
    p.level_of_code = signed_levels().data();
    p.zeros = scales.zeros(0);
    p.scale = Scales::fp16;
    p.scales = scales.of_fp16(0);
    return p;
  }
  p.levels = Levels::bits4;
  p.level_of_code = code_levels(stored.format()).data();
  if (stored.format() == WeightFormat::q4) {
    p.scale = Scales::fp16;
    p.scales = scales.of_fp16(0);
  } else {
    p.scale = Scales::codes;
    p.scales = scales.of_nf4(0);
    p.ranges = &scales.range(0).least;
  }
  return p;
}

std::int64_t packed_bytes(const WeightShape& shape) {
  const StoredTiles stored{shape};
  return checked_mul(count_tiles(shape.out),
                     stored.depth_tiles() * stored.tile_bytes() + ColumnScales::bytes(shape));
}

WeightCut packed_cut(const WeightShape& shape) {
  const StoredTiles stored{shape};
  WeightCut cut{kTile, {stored.depth_tiles() * stored.tile_bytes()}};
  if (!plain(shape)) cut.part_bytes.push_back(ColumnScales::bytes(shape));
  return cut;
}

void pack_weight(const WeightShape& shape, std::int64_t first, std::span<const float> values,
                 View weight, int threads) {
  const WeightRows rows{shape, first, std::ssize(values) / shape.file_columns()};
  const DType kernel = product_dtype(shape);
  const StoredTiles stored = stored_tiles(shape, weight);
  const std::int64_t begin = rows.column_begin() / kTile;
  const std::int64_t count = count_tiles(rows.column_end()) - begin;
  parallel_for(threads, count, 1, [&](std::int64_t from, std::int64_t end) {
    for (std::int64_t column = begin + from; column < begin + end; ++column) {
      for (std::int64_t depth = rows.depth_begin(); depth < rows.depth_end(); depth += kTile) {
        FloatTile tile = tile_of(rows, values, 0.0F, depth, column * kTile);
        pack_tile(kernel, tile);
        convert(floats(tile.data(), kTileElements),
                elements(stored.tile(column, depth / kTile), kTileElements, shape.dtype));
      }
    }
  });
}

void pack_weight(const QuantizedRows& rows, View weight, int threads) {
  const StoredTiles stored = stored_tiles(rows.shape, weight);
  const CodePlaces places(stored);
  const std::int64_t begin = rows.column_begin() / kTile;
  const std::int64_t count = count_tiles(rows.column_end()) - begin;
  parallel_for(threads, count, 1, [&](std::int64_t from, std::int64_t end) {
    for (std::int64_t column = begin + from; column < begin + end; ++column) {
      store_scales(
          rows, column * kTile,
          const_cast<std::byte*>(stored.scales) + column * ColumnScales::bytes(rows.shape));
      for (std::int64_t depth = rows.depth_begin(); depth < rows.depth_end(); depth += kTile) {
        auto tile = tile_of(rows, std::span(rows.codes), zero_code(rows.shape.format), depth,
                            column * kTile);
        pad_depth(rows, depth, column * kTile, tile);
        store_codes(places, rows.shape.format, tile,
                    const_cast<std::byte*>(stored.tile(column, depth / kTile)));
      }
    }
  });
}

void widen_columns(const WeightShape& shape, const View& weight, std::int64_t first,
                   std::int64_t count, std::byte* to) {
  const DType kernel = product_dtype(shape);
  const StoredTiles stored = stored_tiles(shape, weight);
  if (plain(shape)) {
    const std::int64_t all = count * stored.depth_tiles() * kTileElements;
    convert(elements(stored.column(first), all, shape.dtype), elements(to, all, kernel));
    return;
  }
  if (kernel == DType::fp32 && has_gemv()) {
    return widen_codes(stored, first, first + count, reinterpret_cast<float*>(to));
  }
  if (kernel == DType::bf16) {
    for (std::int64_t i = 0; i < count; ++i) {
      widen_pairs(bf16_dot_product(stored, first + i),
                  to + i * stored.depth_tiles() * kTileElements * 2);
    }
    return;
  }
  const TileMap& map = TileMap::of(kernel);
  const CodePlaces places(stored);
  auto* value = reinterpret_cast<float*>(to);
  for (std::int64_t column = first; column < first + count; ++column) {
    const ColumnScales scales = stored.scales_of(column);
    const std::byte* tile = stored.column(column);
    for (std::int64_t step = 0; step < stored.depth_tiles();
         ++step, tile += stored.tile_bytes(), value += kTileElements) {
      const std::int64_t group = scales.group_of(step * kTile);
      for (std::int64_t j = 0; j < kTile; ++j) {
        const float scale = scales.scale(group, j);
        const float zero = scales.zero(group, j);
        for (std::int64_t depth = 0; depth < kTile; ++depth) {
          const float level = code_level(shape.format, tile, places.at(depth, j));
          value[map.place(depth, j)] = (level - zero) * scale;
        }
      }
    }
  }
}

void gather_columns(const WeightShape& shape, const View& weight,
                    std::span<const std::int32_t> tokens, View x) {
  const TileMap& map = TileMap::of(product_dtype(shape));
  const StoredTiles stored = stored_tiles(shape, weight);
  const CodePlaces places(stored);
  dispatch(shape.dtype, [&](auto type) {
    using T = typename decltype(type)::type;
    T* to = static_cast<T*>(x.data());
    for (const std::int32_t token : tokens) {
      const ColumnScales scales = stored.scales_of(token / kTile);
      const std::byte* const column = stored.column(token / kTile);
      const std::int64_t j = token % kTile;
      for (std::int64_t depth = 0; depth < shape.in; ++depth) {
        const std::byte* const tile = column + depth / kTile * stored.tile_bytes();
        const std::int64_t i = depth % kTile;
        const std::int64_t group = scales.group_of(depth);
        *to++ = plain(shape) ? reinterpret_cast<const T*>(tile)[map.place(i, j)]
                             : rounded<T>((code_level(shape.format, tile, places.at(i, j)) -
                                           scales.zero(group, j)) *
                                          scales.scale(group, j));
      }
    }
  });
}

}  // namespace zero::cpu
