// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0

// The packed layout of tiles of fp32 operands. Included inside Highway's foreach_target
// mechanism, once per target.

#if defined(ZERO_OPS_CPU_PACKED_FLOATS_LAYOUT_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef ZERO_OPS_CPU_PACKED_FLOATS_LAYOUT_INL_H_
#undef ZERO_OPS_CPU_PACKED_FLOATS_LAYOUT_INL_H_
#else
#define ZERO_OPS_CPU_PACKED_FLOATS_LAYOUT_INL_H_
#endif

#include <hwy/highway.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <type_traits>

#include "ops/cpu/packed_kernels.h"
#include "ops/cpu/vector_math-inl.h"

HWY_BEFORE_NAMESPACE();
namespace zero::cpu::packed::HWY_NAMESPACE {
namespace io = zero::cpu::HWY_NAMESPACE;
namespace hn = hwy::HWY_NAMESPACE;

using Floats = hn::ScalableTag<float>;
inline constexpr auto kLanes = static_cast<std::int64_t>(hn::MaxLanes(Floats()));
/// Rows that a kernel takes at a time: their sums must fit the registers, 32 with AVX-512 and
/// NEON, 16 elsewhere.
inline constexpr std::int64_t kRows = HWY_ARCH_ARM || kLanes == 16 ? 8 : 4;
/// A packed tile of the left operand holds its rows in groups of kRows: for each group the values
/// at one depth, then those at the next.
inline constexpr std::int64_t kGroupFloats = kRows * kTile;
/// One of the right operand holds rows of depth; with vectors of 8 floats, a vector's columns at
/// all depths, then the next vector's: three vectors of a row would fill one and a half cache
/// lines.
inline constexpr bool kByVectors = kLanes == 8 && !HWY_HAVE_SCALABLE;
inline constexpr std::int64_t kRightDown = kByVectors ? kLanes : kTile;             ///< a depth
inline constexpr std::int64_t kRightAcross = kByVectors ? kLanes * kTile : kLanes;  ///< a vector

// One tile of several that lie side by side.
template <typename T>
void copy_tile(const Patch& tile, float* to) {
  const Floats d;
  const std::int64_t columns = std::min(tile.columns, kTile);
  const T* from = static_cast<const T*>(tile.data);
  for (std::int64_t row = 0; row < tile.rows; ++row, from += tile.stride, to += kTile) {
    io::for_lanes(d, static_cast<std::size_t>(columns), [&](std::size_t i, auto lanes) HWY_ATTR {
      io::store(d, io::load(d, from + i, lanes), to + i, lanes);
    });
    std::fill(to + columns, to + kTile, 0.0F);
  }
  std::fill(to, to + (kTile - tile.rows) * kTile, 0.0F);
}

// A whole tile of the right operand.
template <typename T>
void copy_vectors(const T* from, std::int64_t stride, float* to) {
  const Floats d;
  for (std::int64_t row = 0; row < kTile; ++row, from += stride, to += kRightDown) {
    io::for_lanes(d, kTile, [&](std::size_t i, auto lanes) HWY_ATTR {
      const auto vector = static_cast<std::int64_t>(i) / kLanes;
      io::store(d, io::load(d, from + i, lanes), to + vector * kRightAcross, lanes);
    });
  }
}

template <typename T>
void copy_right(const Patch& tile, float* to) {
  if constexpr (!kByVectors) return copy_tile<T>(tile, to);
  if (tile.rows >= kTile && tile.columns >= kTile) {
    return copy_vectors(static_cast<const T*>(tile.data), tile.stride, to);
  }
  HWY_ALIGN float aside[kTileElements];
  copy_tile<T>(tile, aside);
  copy_vectors(aside, kTile, to);
}

#if HWY_TARGET == HWY_SCALAR || HWY_HAVE_SCALABLE

inline void transpose_tile(const float* from, std::int64_t stride, float* to) {
  for (std::int64_t row = 0; row < kTile; ++row) {
    for (std::int64_t column = 0; column < kTile; ++column) {
      to[column * kTile + row] = from[row * stride + column];
    }
  }
}

inline float* place_in_groups(float* to, std::int64_t row, std::int64_t depth) {
  return to + row / kRows * kGroupFloats + depth * kRows + row % kRows;
}

inline void group_rows(const float* from, std::int64_t stride, float* to) {
  for (std::int64_t row = 0; row < kTile; ++row) {
    for (std::int64_t depth = 0; depth < kTile; ++depth) {
      *place_in_groups(to, row, depth) = from[row * stride + depth];
    }
  }
}

inline void group_columns(const float* from, std::int64_t stride, float* to) {
  for (std::int64_t depth = 0; depth < kTile; ++depth) {
    for (std::int64_t row = 0; row < kTile; ++row) {
      *place_in_groups(to, row, depth) = from[depth * stride + row];
    }
  }
}

#else

// Four neighbours of each of Lanes(d) rows: those of rows i, 4 + i, 8 + i... side by side.
template <class D>
HWY_INLINE hn::Vec<D> load_fours(D d, const float* from, std::int64_t stride) {
  constexpr auto lanes = static_cast<std::int64_t>(hn::MaxLanes(D()));
  if constexpr (lanes <= 4) {
    return hn::LoadU(d, from);
  } else {
    const hn::Half<D> half;
    return hn::Combine(d, load_fours(half, from + lanes / 2 * stride, stride),
                       load_fours(half, from, stride));
  }
}

// Four columns of Lanes(d) rows become rows: write(i, row) takes them.
template <class Write>
HWY_INLINE void transpose_fours(const float* from, std::int64_t stride, const Write& write) {
  const Floats d;
  const hn::RepartitionToWide<hn::RebindToUnsigned<Floats> > pairs;
  const auto r0 = load_fours(d, from, stride);
  const auto r1 = load_fours(d, from + stride, stride);
  const auto r2 = load_fours(d, from + 2 * stride, stride);
  const auto r3 = load_fours(d, from + 3 * stride, stride);
  const auto low01 = hn::BitCast(pairs, hn::InterleaveLower(d, r0, r1));
  const auto low23 = hn::BitCast(pairs, hn::InterleaveLower(d, r2, r3));
  const auto high01 = hn::BitCast(pairs, hn::InterleaveUpper(d, r0, r1));
  const auto high23 = hn::BitCast(pairs, hn::InterleaveUpper(d, r2, r3));
  write(0, hn::BitCast(d, hn::InterleaveLower(pairs, low01, low23)));
  write(1, hn::BitCast(d, hn::InterleaveUpper(pairs, low01, low23)));
  write(2, hn::BitCast(d, hn::InterleaveLower(pairs, high01, high23)));
  write(3, hn::BitCast(d, hn::InterleaveUpper(pairs, high01, high23)));
}

inline void transpose_tile(const float* from, std::int64_t stride, float* to) {
  const Floats d;
  for (std::int64_t row = 0; row < kTile; row += kLanes) {
    for (std::int64_t column = 0; column < kTile; column += 4) {
      transpose_fours(
          from + row * stride + column, stride, [&](std::int64_t i, auto values) HWY_ATTR {
            hn::Store(values, d, to + (column + i) * kRightDown + row / kLanes * kRightAcross);
          });
    }
  }
}

// Stores values of rows from `row` on at one depth to their groups.
template <class V>
HWY_INLINE void store_in_groups(V values, float* to, std::int64_t row, std::int64_t depth) {
  const hn::DFromV<V> d;
  constexpr auto lanes = static_cast<std::int64_t>(hn::MaxLanes(d));
  if constexpr (lanes > kRows) {
    const hn::Half<hn::DFromV<V> > half;
    store_in_groups(hn::LowerHalf(half, values), to, row, depth);
    store_in_groups(hn::UpperHalf(half, values), to, row + lanes / 2, depth);
  } else {
    hn::Store(values, d, to + row / kRows * kGroupFloats + depth * kRows + row % kRows);
  }
}

// A tile whose rows are those of the left operand.
inline void group_rows(const float* from, std::int64_t stride, float* to) {
  for (std::int64_t row = 0; row < kTile; row += kLanes) {
    for (std::int64_t depth = 0; depth < kTile; depth += 4) {
      transpose_fours(from + row * stride + depth, stride,
                      [&](std::int64_t i, auto values)
                          HWY_ATTR { store_in_groups(values, to, row, depth + i); });
    }
  }
}

// One whose columns are.
inline void group_columns(const float* from, std::int64_t stride, float* to) {
  const Floats d;
  for (std::int64_t depth = 0; depth < kTile; ++depth, from += stride) {
    for (std::int64_t row = 0; row < kTile; row += kLanes) {
      store_in_groups(hn::LoadU(d, from + row), to, row, depth);
    }
  }
}

#endif

using Reorder = void (*)(const float* from, std::int64_t stride, float* to);

template <typename T>
void reorder_tile(const Patch& tile, Reorder reorder, float* to) {
  const bool whole = tile.rows >= kTile && tile.columns >= kTile;
  if constexpr (std::is_same_v<T, float>) {
    if (whole) return reorder(static_cast<const T*>(tile.data), tile.stride, to);
  }
  HWY_ALIGN float aside[kTileElements];
  copy_tile<T>(tile, aside);
  reorder(aside, kTile, to);
}

/// Packs the first tile of `tile` in the given `form`.
template <typename T>
void pack_tile(Form form, const Patch& tile, float* to) {
  switch (form) {
    case Form::left:
      return reorder_tile<T>(tile, group_rows, to);
    case Form::left_transposed:
      return reorder_tile<T>(tile, group_columns, to);
    case Form::right:
      return copy_right<T>(tile, to);
    case Form::right_transposed:
      return reorder_tile<T>(tile, transpose_tile, to);
  }
}

}  // namespace zero::cpu::packed::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // ZERO_OPS_CPU_PACKED_FLOATS_LAYOUT_INL_H_
