// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "ops/cpu/skinny_product.cpp"
#include <hwy/foreach_target.h>
// Highway requires this order: after foreach_target.
#include <hwy/highway.h>

#include "device/cpu/dispatch.h"
#include "ops/cpu/skinny_product.h"
#include "ops/cpu/stored_tiles-inl.h"

HWY_BEFORE_NAMESPACE();
namespace zero::cpu::packed::HWY_NAMESPACE {

#if HWY_HAVE_SCALABLE || HWY_TARGET == HWY_SCALAR

bool has_gemv_any() { return false; }
void multiply_skinny_any(const SkinnyProduct&, std::int64_t, std::int64_t, float*, std::byte*) {}
void widen_codes_any(const StoredTiles&, std::int64_t, std::int64_t, float*) {}

#else

inline constexpr std::int64_t kLine = 64;                        // bytes
inline constexpr std::int64_t kMostRows = kLanes == 16 ? 8 : 4;  // whose sums fit the registers

inline constexpr std::int64_t kSharing = 2;  // sweeps that fetch a share each of the next column

/// What is fetched while a tile is multiplied.
enum class Fetch : std::uint8_t {
  nothing,
  ahead,  ///< a tile of this column: hardware prefetchers do not follow vectors of
          ///< columns that lie apart
  share,  ///< a share of the next column, into the second cache: memory is read while rows
          ///< multiply
  ahead_and_share,
};
template <Fetch fetch>
using Constant = std::integral_constant<Fetch, fetch>;
constexpr bool fetches_ahead(Fetch fetch) {
  return fetch == Fetch::ahead || fetch == Fetch::ahead_and_share;
}
constexpr bool fetches_share(Fetch fetch) {
  return fetch == Fetch::share || fetch == Fetch::ahead_and_share;
}

// `count` rows and `vectors` vectors of columns, from `vector` on.
template <class Stored, std::int64_t count, std::int64_t vectors, Fetch fetch>
HWY_INLINE void multiply_part(const SkinnyProduct& p, std::int64_t column, const std::byte* tile,
                              std::int64_t row, std::int64_t vector, float* sums) {
  const Floats d;
  Stored stored;
  const ColumnScales scales = p.weight.scales_of(column);
  const std::int64_t depth_tiles = p.weight.depth_tiles();
  [[maybe_unused]] const std::byte* const share =
      tile + depth_tiles * Stored::kBytes +
      row / kMostRows * depth_tiles * Stored::kBytes / kSharing;
  hn::Vec<Floats> sum[count][vectors];
  VectorScales<Stored> scale[vectors];
#pragma GCC unroll 8
  for (std::int64_t j = 0; j < vectors; ++j) {
#pragma GCC unroll 8
    for (std::int64_t i = 0; i < count; ++i) sum[i][j] = hn::Zero(d);
  }
  const float* x = p.x + row * depth_tiles * kTile;
  const std::int64_t stride = depth_tiles * kTile;
  for (std::int64_t step = 0; step < depth_tiles; ++step, tile += Stored::kBytes, x += kTile) {
    if constexpr (Stored::kScaled) {
      const std::int64_t group = scales.group_of(step * kTile);
      if (step == 0 || group != scales.group_of((step - 1) * kTile)) {
#pragma GCC unroll 8
        for (std::int64_t j = 0; j < vectors; ++j) {
          scale[j] = VectorScales<Stored>(scales, group, (vector + j) * kLanes);
        }
      }
    }
    constexpr std::int64_t lines = Stored::kBytes / kLine;
    if constexpr (fetches_ahead(fetch) && lines < kTile) {
      for (std::int64_t line = 0; line < lines; ++line) {
        __builtin_prefetch(tile + Stored::kAhead + line * kLine);
      }
    }
    const auto* const from = stored.open(tile);
#pragma GCC unroll 4
    for (std::int64_t depth = 0; depth < kTile; ++depth) {
      if constexpr (fetches_ahead(fetch)) {
        for (std::int64_t line = 0; line < lines / kTile; ++line) {
          __builtin_prefetch(tile + Stored::kAhead + (depth * lines / kTile + line) * kLine);
        }
      }
      if constexpr (fetches_share(fetch)) {
        constexpr std::int64_t every = kTile * kSharing / lines;
        static_assert(every > 0);
        if (depth % every == 0) {
          __builtin_prefetch(share + (step * lines / kSharing + depth / every) * kLine, 0, 2);
        }
      }
      hn::Vec<Floats> right[vectors];
      stored.load(from, depth, vector, right);
      if constexpr (Stored::kScaled) {
#pragma GCC unroll 8
        for (std::int64_t j = 0; j < vectors; ++j) right[j] = scale[j].times(right[j]);
      }
#pragma GCC unroll 8
      for (std::int64_t i = 0; i < count; ++i) {
        const auto value = hn::Set(d, x[i * stride + depth]);
#pragma GCC unroll 8
        for (std::int64_t j = 0; j < vectors; ++j) {
          sum[i][j] = hn::MulAdd(value, right[j], sum[i][j]);
        }
      }
    }
  }
#pragma GCC unroll 8
  for (std::int64_t i = 0; i < count; ++i) {
    float* const to = sums + (row + i) * kTile + vector * kLanes;
#pragma GCC unroll 8
    for (std::int64_t j = 0; j < vectors; ++j) hn::StoreU(sum[i][j], d, to + j * kLanes);
  }
}

// Sums must fit the registers: few vectors of columns beside many rows.
template <class Stored, std::int64_t count>
void multiply_rows(const SkinnyProduct& p, std::int64_t column, const std::byte* tile,
                   std::int64_t row, float* sums) {
  constexpr std::int64_t vectors = kVectorsAcross % 4 == 0 && count <= 2 ? 4 : 2;
  const auto multiply = [&](auto fetch, std::int64_t vector) HWY_ATTR {
    multiply_part<Stored, count, vectors, fetch()>(p, column, tile, row, vector, sums);
  };
  const bool shares = Stored::kInMemory && p.rows > kMostRows && row < kSharing * kMostRows;
  if (row == 0 && shares) {
    multiply(Constant<Fetch::ahead_and_share>(), 0);
  } else if (row == 0) {
    multiply(Constant<Fetch::ahead>(), 0);
  } else if (shares && row % kMostRows == 0) {
    multiply(Constant<Fetch::share>(), 0);
  } else {
    multiply(Constant<Fetch::nothing>(), 0);
  }
  for (std::int64_t j = vectors; j < kVectorsAcross; j += vectors) {
    multiply(Constant<Fetch::nothing>(), j);
  }
}

template <class Stored>
void multiply_column(const SkinnyProduct& p, std::int64_t column, const std::byte* tile,
                     float* sums) {
  std::int64_t row = 0;
  for (; row + kMostRows <= p.rows; row += kMostRows) {
    multiply_rows<Stored, kMostRows>(p, column, tile, row, sums);
  }
  if constexpr (kMostRows > 4) {
    for (; row + 4 <= p.rows; row += 4) multiply_rows<Stored, 4>(p, column, tile, row, sums);
  }
  for (; row + 2 <= p.rows; row += 2) multiply_rows<Stored, 2>(p, column, tile, row, sums);
  if (row < p.rows) multiply_rows<Stored, 1>(p, column, tile, row, sums);
}

template <class Stored>
void multiply_columns(const SkinnyProduct& p, std::int64_t begin, std::int64_t end, float* sums) {
  for (std::int64_t column = begin; column < end; ++column, sums += p.rows * kTile) {
    multiply_column<Stored>(p, column, p.weight.column(column), sums);
  }
}

template <WeightFormat format>
void multiply_looked_up(const SkinnyProduct& p, std::int64_t begin, std::int64_t end, float* sums,
                        std::byte* scratch) {
  const FourBits<format> levels;
  for (std::int64_t column = begin; column < end; ++column, sums += p.rows * kTile) {
    const std::byte* tile = p.weight.column(column);
    auto* to = reinterpret_cast<std::uint16_t*>(scratch);
    for (std::int64_t step = 0; step < p.weight.depth_tiles(); ++step) {
      levels.look_up(tile + step * FourBits<format>::kBytes, to + step * kTileElements);
    }
    multiply_column<LookedUp<format> >(p, column, scratch, sums);
  }
}

template <WeightFormat format>
void multiply_codes(const SkinnyProduct& p, std::int64_t begin, std::int64_t end, float* sums,
                    [[maybe_unused]] std::byte* scratch) {
  if constexpr (FourBits<format>::kLooksUpTiles) {
    if (p.rows > SkinnyProduct::kLookUpEach)
      return multiply_looked_up<format>(p, begin, end, sums, scratch);
  }
  multiply_columns<FourBits<format> >(p, begin, end, sums);
}

template <class Stored>
void widen_codes(const StoredTiles& weight, std::int64_t begin, std::int64_t end, float* to) {
  const Floats d;
  Stored stored;
  for (std::int64_t column = begin; column < end; ++column) {
    const ColumnScales scales = weight.scales_of(column);
    const std::byte* tile = weight.column(column);
    for (std::int64_t step = 0; step < weight.depth_tiles();
         ++step, tile += Stored::kBytes, to += kTileElements) {
      const std::int64_t group = scales.group_of(step * kTile);
      const auto* const from = stored.open(tile);
      for (std::int64_t vector = 0; vector < kVectorsAcross; vector += 2) {
        const VectorScales<Stored> first(scales, group, vector * kLanes);
        const VectorScales<Stored> second(scales, group, (vector + 1) * kLanes);
        for (std::int64_t depth = 0; depth < kTile; ++depth) {
          hn::Vec<Floats> levels[2];
          stored.load(from, depth, vector, levels);
          hn::Store(first.times(levels[0]), d, to + place(depth, vector));
          hn::Store(second.times(levels[1]), d, to + place(depth, vector + 1));
        }
      }
    }
  }
}

void widen_codes_any(const StoredTiles& weight, std::int64_t begin, std::int64_t end, float* to) {
  if (weight.format() == WeightFormat::int8) return widen_codes<Int8>(weight, begin, end, to);
  if (weight.format() == WeightFormat::nf4)
    return widen_codes<FourBits<WeightFormat::nf4> >(weight, begin, end, to);
  if (weight.format() == WeightFormat::u4)
    return widen_codes<FourBits<WeightFormat::u4> >(weight, begin, end, to);
  widen_codes<FourBits<WeightFormat::q4> >(weight, begin, end, to);
}

bool has_gemv_any() { return true; }

void multiply_skinny_any(const SkinnyProduct& p, std::int64_t begin, std::int64_t end, float* sums,
                         std::byte* scratch) {
  switch (p.weight.format()) {
    case WeightFormat::int8:
      return multiply_columns<Int8>(p, begin, end, sums);
    case WeightFormat::nf4:
      return multiply_codes<WeightFormat::nf4>(p, begin, end, sums, scratch);
    case WeightFormat::q4:
      return multiply_codes<WeightFormat::q4>(p, begin, end, sums, scratch);
    case WeightFormat::u4:
      return multiply_codes<WeightFormat::u4>(p, begin, end, sums, scratch);
    case WeightFormat::plain:
      dispatch(p.weight.shape.dtype, [&](auto type) {
        multiply_columns<Plain<typename decltype(type)::type> >(p, begin, end, sums);
      });
  }
}

#endif

}  // namespace zero::cpu::packed::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace zero::cpu {
namespace packed {
HWY_EXPORT(has_gemv_any);
HWY_EXPORT(multiply_skinny_any);
HWY_EXPORT(widen_codes_any);
}  // namespace packed

bool has_gemv() {
  using namespace packed;  // HWY_DYNAMIC_DISPATCH names a table of that namespace
  return HWY_DYNAMIC_DISPATCH(has_gemv_any)();
}

void multiply_skinny(const SkinnyProduct& product, std::int64_t begin, std::int64_t end,
                     float* sums, std::byte* scratch) {
  using namespace packed;
  HWY_DYNAMIC_DISPATCH(multiply_skinny_any)(product, begin, end, sums, scratch);
}

void widen_codes(const StoredTiles& weight, std::int64_t begin, std::int64_t end, float* to) {
  using namespace packed;
  HWY_DYNAMIC_DISPATCH(widen_codes_any)(weight, begin, end, to);
}

}  // namespace zero::cpu
#endif  // HWY_ONCE
