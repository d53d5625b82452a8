// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "ops/cpu/packed_floats.cpp"
#include <hwy/foreach_target.h>
// Highway requires this order: after foreach_target.
#include <hwy/highway.h>

#include <algorithm>

#include "device/cpu/dispatch.h"
#include "ops/cpu/packed_floats_layout-inl.h"
#include "ops/cpu/packed_kernels.h"

HWY_BEFORE_NAMESPACE();
namespace zero::cpu::packed::HWY_NAMESPACE {

// Vectors of columns per row. Fewer would need more loads per multiplication, which costs most if
// another thread shares the core (SMT).
inline constexpr std::int64_t kVectors = 3;

// Row panels of the left operand multiplied by the same columns before the next columns are
// fetched: together, also if they are read in place, they stay in the L2 cache (144 or 288 KiB).
inline constexpr std::int64_t kPanels = HWY_HAVE_SCALABLE ? 1 : 6;
// Three vectors of columns: 18 KiB of the L1 cache with 8 lanes; 72 KiB, from the L2 cache,
// with 16.
inline constexpr std::int64_t kDepth = kLanes == 16 ? 384 : 192;
std::int64_t panels_any() { return kPanels; }
std::int64_t depth_any() { return kDepth; }
// Whether finished sums go from registers to their place in memory, without a second pass.
bool finishes_any() { return !HWY_HAVE_SCALABLE; }

void pack_any(Form form, const Patch& patch, std::byte* to, std::int64_t step) {
  dispatch(patch.dtype, [&](auto type) {
    using T = typename decltype(type)::type;
    Patch tile = patch;
    for (; tile.columns > 0; tile.columns -= kTile, to += step) {
      pack_tile<T>(form, tile, reinterpret_cast<float*>(to));
      tile.data = static_cast<const T*>(tile.data) + kTile;
    }
  });
}

// kRows rows of the left operand, packed or in place: their values at each depth of one tile,
// then of the next.
class Packed {
 public:
  Packed(const RowPanel& left, std::int64_t row)
      : group_(reinterpret_cast<const float*>(left.upper) + row * kTile) {}
  float value(std::int64_t row, std::int64_t depth) const { return group_[depth * kRows + row]; }
  void next(std::int64_t step_floats) { group_ += step_floats; }

 private:
  const float* group_;
};
class InPlace {
 public:
  InPlace(const RowPanel& left, std::int64_t row) {
    const auto* first = reinterpret_cast<const float*>(left.upper);
    for (std::int64_t i = 0; i < kRows; ++i) rows_[i] = first + (row + i) * (left.row_bytes / 4);
  }
  float value(std::int64_t row, std::int64_t depth) const { return rows_[row][depth]; }
  void next(std::int64_t step_floats) {
#pragma GCC unroll 8
    for (std::int64_t i = 0; i < kRows; ++i) rows_[i] += step_floats;
  }

 private:
  const float* rows_[kRows];
};

#if HWY_HAVE_SCALABLE

// Vectors of unknown compile-time length cannot be array elements: the compiler chooses registers.
template <class Left>
void multiply_panel(const PanelProduct& p) {
  for (std::int64_t row = 0; row < p.rows; ++row) {
    for (std::int64_t tile = 0; tile < p.tiles; ++tile) {
      float* const result = p.result + tile * p.result_across + row * p.result_stride;
      const auto* right = reinterpret_cast<const float*>(p.right + tile * p.right_across);
      if (p.start == PanelProduct::Start::zero) std::fill(result, result + kTile, 0.0F);
      Left left(p.left, row / kRows * kRows);
      for (std::int64_t step = 0; step < p.depth_tiles; ++step) {
        for (std::int64_t depth = 0; depth < kTile; ++depth, right += kTile) {
          const float value = left.value(row % kRows, depth);
          for (std::int64_t i = 0; i < kTile; ++i) result[i] += value * right[i];
        }
        left.next(p.left.tile_bytes / 4);
      }
    }
  }
}

template <class Left>
void multiply_tiles(const PanelProduct& p) {
  PanelProduct one = p;
  for (std::int64_t panel = 0; panel < p.panels; ++panel) {
    one.rows = panel + 1 < p.panels ? kTile : p.rows;
    multiply_panel<Left>(one);
    one.left.upper += p.left.panel_bytes;
    one.result += p.result_down;
  }
}

#else

// `count` vectors of columns side by side, possibly in neighbouring tiles.
template <std::int64_t count>
struct Columns {
  const float* right[count];
  float* result[count];  ///< in the first row of the tile
  std::int64_t first;    ///< the first column

  Columns(const PanelProduct& p, std::int64_t vector) : first(vector * kLanes) {
    for (std::int64_t j = 0; j < count; ++j) {
      const std::int64_t tile = (vector + j) * kLanes / kTile;
      const std::int64_t within = (vector + j) * kLanes % kTile;
      right[j] = reinterpret_cast<const float*>(p.right + tile * p.right_across) +
                 within / kLanes * kRightAcross;
      result[j] = p.result + tile * p.result_across + within;
    }
  }
};

// One row's finished sums of `count` vectors of columns, from `column` on.
template <std::int64_t count>
HWY_INLINE void finish_row(const PanelProduct::Finish& finish, const hn::Vec<Floats>* sums,
                           float* to, std::int64_t column) {
  const Floats d;
#pragma GCC unroll 3
  for (std::int64_t j = 0; j < count; ++j) {
    auto value = sums[j];
    if (finish.bias != nullptr) {
      value = hn::Add(value, hn::LoadU(d, finish.bias + column + j * kLanes));
    }
    if (finish.add) value = hn::Add(value, hn::LoadU(d, to + j * kLanes));
    hn::StoreU(value, d, to + j * kLanes);
  }
}

// kRows rows, the first of them `row`, and `count` vectors of columns; the first row's sums are
// `first` elements after the result's.
template <class Left, std::int64_t count>
HWY_INLINE void multiply_registers(const PanelProduct& p, Columns<count> columns, Left left,
                                   std::int64_t row, std::int64_t first) {
  const Floats d;
  hn::Vec<Floats> sums[kRows][count];
  const bool zero = p.start == PanelProduct::Start::zero;
#pragma GCC unroll 8
  for (std::int64_t i = 0; i < kRows; ++i) {
#pragma GCC unroll 3
    for (std::int64_t j = 0; j < count; ++j) {
      const float* from = columns.result[j] + first + i * p.result_stride;
      sums[i][j] = zero ? hn::Zero(d) : hn::LoadU(d, from);
    }
  }
#pragma GCC unroll 8
  for (std::int64_t i = 0; i < kRows; ++i) {  // the next rows' sums, during these multiplications
    const std::int64_t below = first + (kRows + i) * p.result_stride;
    __builtin_prefetch(columns.result[0] + below);
    __builtin_prefetch(columns.result[count - 1] + below);
  }
  float* const finished =
      p.finish.data == nullptr ? nullptr : p.finish.data + row * p.finish.stride + columns.first;
  if (finished != nullptr) {
#pragma GCC unroll 8
    for (std::int64_t i = 0; i < kRows; ++i) {
      __builtin_prefetch(finished + i * p.finish.stride);
      __builtin_prefetch(finished + i * p.finish.stride + count * kLanes - 1);
    }
  }
  for (std::int64_t step = 0; step < p.depth_tiles; ++step) {
    // By fours: the compiler does not unroll a loop around unrolled ones by itself.
    for (std::int64_t four = 0; four < kTile; four += 4) {
#pragma GCC unroll 4
      for (std::int64_t depth = four; depth < four + 4; ++depth) {
        hn::Vec<Floats> right[count];
#pragma GCC unroll 3
        for (std::int64_t j = 0; j < count; ++j) {
          right[j] = hn::Load(d, columns.right[j] + depth * kRightDown);
        }
#pragma GCC unroll 8
        for (std::int64_t i = 0; i < kRows; ++i) {
          const auto value = hn::Set(d, left.value(i, depth));
#pragma GCC unroll 3
          for (std::int64_t j = 0; j < count; ++j) {
            sums[i][j] = hn::MulAdd(value, right[j], sums[i][j]);
          }
        }
      }
    }
    left.next(p.left.tile_bytes / 4);
#pragma GCC unroll 3
    for (std::int64_t j = 0; j < count; ++j) columns.right[j] += kTileElements;
  }
  if (finished != nullptr) {
#pragma GCC unroll 8
    for (std::int64_t i = 0; i < kRows; ++i) {
      finish_row<count>(p.finish, sums[i], finished + i * p.finish.stride, columns.first);
    }
    return;
  }
#pragma GCC unroll 8
  for (std::int64_t i = 0; i < kRows; ++i) {
#pragma GCC unroll 3
    for (std::int64_t j = 0; j < count; ++j) {
      hn::StoreU(sums[i][j], d, columns.result[j] + first + i * p.result_stride);
    }
  }
}

template <class Left, std::int64_t count>
void multiply_columns(const PanelProduct& p, std::int64_t vector) {
  const Columns<count> columns(p, vector);
  RowPanel left = p.left;
  std::int64_t result = 0;
  for (std::int64_t panel = 1; panel <= p.panels; ++panel) {
    const std::int64_t rows = panel < p.panels ? kTile : p.rows;
    for (std::int64_t row = 0; row < rows; row += kRows) {
      multiply_registers<Left, count>(p, columns, Left(left, row), (panel - 1) * kTile + row,
                                      result + row * p.result_stride);
    }
    left.upper += p.left.panel_bytes;
    result += p.result_down;
  }
}

template <class Left>
void multiply_tiles(const PanelProduct& p) {
  const std::int64_t vectors = p.tiles * (kTile / kLanes);
  for (std::int64_t vector = 0; vector < vectors;) {
    const std::int64_t rest = vectors - vector;
    if (rest == 2 || rest == 4) {  // avoids a single leftover vector
      multiply_columns<Left, 2>(p, vector);
      vector += 2;
    } else {
      multiply_columns<Left, kVectors>(p, vector);
      vector += kVectors;
    }
  }
}

#endif

void multiply_any(const PanelProduct& p) {
  if (p.left.row_bytes == 0) {
    multiply_tiles<Packed>(p);
  } else {
    multiply_tiles<InPlace>(p);
  }
}

template <typename T, typename B>
void store_rows_of(const float* result, const Destination& to) {
  const Floats d;
  const auto* bias = static_cast<const B*>(to.bias);
  for (std::int64_t row = 0; row < to.rows; ++row, result += kTile) {
    T* place = static_cast<T*>(to.data) + row * to.stride;
    io::for_lanes(d, static_cast<std::size_t>(to.columns), [&](std::size_t i, auto lanes) HWY_ATTR {
      auto value = hn::Load(d, result + i);
      if (bias != nullptr) value = hn::Add(value, io::load(d, bias + i, lanes));
      if (to.mode == Destination::Mode::add) value = hn::Add(value, io::load(d, place + i, lanes));
      io::store(d, value, place + i, lanes);
    });
  }
}

void store_any(const float* result, const Destination& to) {
  dispatch(to.dtype, [&](auto type) {
    dispatch(to.bias_dtype, [&](auto bias) {
      store_rows_of<typename decltype(type)::type, typename decltype(bias)::type>(result, to);
    });
  });
}

}  // namespace zero::cpu::packed::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace zero::cpu::packed {
namespace {

HWY_EXPORT(pack_any);
HWY_EXPORT(multiply_any);
HWY_EXPORT(store_any);
HWY_EXPORT(panels_any);
HWY_EXPORT(depth_any);
HWY_EXPORT(finishes_any);

void nothing() {}
void pack(Form form, const Patch& patch, std::byte* to, std::int64_t step) {
  HWY_DYNAMIC_DISPATCH(pack_any)(form, patch, to, step);
}
void multiply(const PanelProduct& product) { HWY_DYNAMIC_DISPATCH(multiply_any)(product); }
void store(const float* result, const Destination& to) {
  HWY_DYNAMIC_DISPATCH(store_any)(result, to);
}

}  // namespace

const Kernels& float_kernels() {
  static const Kernels kernels{.tile_bytes = kTileElements * 4,
                               .left_bytes = 0,
                               .tiles = 3,  // whole groups of three vectors of any length
                               .panels = HWY_DYNAMIC_DISPATCH(panels_any)(),
                               .finishes = HWY_DYNAMIC_DISPATCH(finishes_any)(),
                               .in_place = DType::fp32,
                               .depth = HWY_DYNAMIC_DISPATCH(depth_any)(),
                               .begin = nothing,
                               .end = nothing,
                               .pack = pack,
                               .multiply = multiply,
                               .store = store,
                               .in_registers = nullptr};
  return kernels;
}

}  // namespace zero::cpu::packed
#endif  // HWY_ONCE
