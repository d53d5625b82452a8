// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "model/cpu/packed_floats.cpp"
#include <hwy/foreach_target.h>
// After foreach_target, as Highway wants it.
#include <hwy/highway.h>

#include <algorithm>
#include <type_traits>

#include "model/cpu/packed_kernels.h"
#include "model/cpu/typed.h"
#include "model/cpu/vector_math-inl.h"

HWY_BEFORE_NAMESPACE();
namespace zero::cpu::packed::HWY_NAMESPACE {
namespace io = zero::cpu::HWY_NAMESPACE;
namespace hn = hwy::HWY_NAMESPACE;

using Floats = hn::ScalableTag<float>;
inline constexpr auto kLanes = static_cast<std::int64_t>(hn::MaxLanes(Floats()));
// A kernel's sums, up to three vectors a row, and what is multiplied must fit the registers: there
// are 32 with AVX-512 and NEON, 16 elsewhere. Fewer vectors a row would load more often than they
// multiply, which costs most where another thread has its turns on the same core.
inline constexpr std::int64_t kRows = HWY_ARCH_ARM || kLanes == 16 ? 8 : 4;
inline constexpr std::int64_t kVectors = 3;

// A packed square of the left operand is its rows by groups of kRows: of each group the values at
// one depth, then those at the next.
inline constexpr std::int64_t kGroupFloats = kRows * kBlock;

// One square of several that lie side by side.
template <typename T>
void copy_square(const Patch& square, float* to) {
  const Floats d;
  const std::int64_t columns = std::min(square.columns, kBlock);
  const T* from = static_cast<const T*>(square.data);
  for (std::int64_t row = 0; row < square.rows; ++row, from += square.stride, to += kBlock) {
    io::for_lanes(d, static_cast<std::size_t>(columns), [&](std::size_t i, auto lanes) HWY_ATTR {
      io::store(d, io::load(d, from + i, lanes), to + i, lanes);
    });
    std::fill(to + columns, to + kBlock, 0.0F);
  }
  std::fill(to, to + (kBlock - square.rows) * kBlock, 0.0F);
}

#if HWY_TARGET == HWY_SCALAR || HWY_HAVE_SCALABLE

void transpose_square(const float* from, std::int64_t stride, float* to) {
  for (std::int64_t row = 0; row < kBlock; ++row) {
    for (std::int64_t column = 0; column < kBlock; ++column) {
      to[column * kBlock + row] = from[row * stride + column];
    }
  }
}

float* place_in_groups(float* to, std::int64_t row, std::int64_t depth) {
  return to + row / kRows * kGroupFloats + depth * kRows + row % kRows;
}

void group_rows(const float* from, std::int64_t stride, float* to) {
  for (std::int64_t row = 0; row < kBlock; ++row) {
    for (std::int64_t depth = 0; depth < kBlock; ++depth) {
      *place_in_groups(to, row, depth) = from[row * stride + depth];
    }
  }
}

void group_columns(const float* from, std::int64_t stride, float* to) {
  for (std::int64_t depth = 0; depth < kBlock; ++depth) {
    for (std::int64_t row = 0; row < kBlock; ++row) {
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

void transpose_square(const float* from, std::int64_t stride, float* to) {
  const Floats d;
  for (std::int64_t row = 0; row < kBlock; row += kLanes) {
    for (std::int64_t column = 0; column < kBlock; column += 4) {
      transpose_fours(from + row * stride + column, stride,
                      [&](std::int64_t i, auto values)
                          HWY_ATTR { hn::Store(values, d, to + (column + i) * kBlock + row); });
    }
  }
}

// Values of rows from `row` on at one depth, to their groups.
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

// A square whose rows are those of the left operand.
void group_rows(const float* from, std::int64_t stride, float* to) {
  for (std::int64_t row = 0; row < kBlock; row += kLanes) {
    for (std::int64_t depth = 0; depth < kBlock; depth += 4) {
      transpose_fours(from + row * stride + depth, stride,
                      [&](std::int64_t i, auto values)
                          HWY_ATTR { store_in_groups(values, to, row, depth + i); });
    }
  }
}

// One whose columns are.
void group_columns(const float* from, std::int64_t stride, float* to) {
  const Floats d;
  for (std::int64_t depth = 0; depth < kBlock; ++depth, from += stride) {
    for (std::int64_t row = 0; row < kBlock; row += kLanes) {
      store_in_groups(hn::LoadU(d, from + row), to, row, depth);
    }
  }
}

#endif

using Reorder = void (*)(const float* from, std::int64_t stride, float* to);

template <typename T>
void reorder_square(const Patch& square, Reorder reorder, float* to) {
  const bool whole = square.rows >= kBlock && square.columns >= kBlock;
  if constexpr (std::is_same_v<T, float>) {
    if (whole) return reorder(static_cast<const T*>(square.data), square.stride, to);
  }
  HWY_ALIGN float aside[kResultFloats];
  copy_square<T>(square, aside);
  reorder(aside, kBlock, to);
}

template <typename T>
void pack_square(Form form, const Patch& square, float* to) {
  switch (form) {
    case Form::left:
      return reorder_square<T>(square, group_rows, to);
    case Form::left_transposed:
      return reorder_square<T>(square, group_columns, to);
    case Form::right:
      return copy_square<T>(square, to);
    case Form::right_transposed:
      return reorder_square<T>(square, transpose_square, to);
  }
}

void pack_any(Form form, const Patch& patch, std::byte* to, std::int64_t step) {
  with_type(patch.dtype, [&](auto type) {
    using T = typename decltype(type)::type;
    Patch square = patch;
    for (; square.columns > 0; square.columns -= kBlock, to += step) {
      pack_square<T>(form, square, reinterpret_cast<float*>(to));
      square.data = static_cast<const T*>(square.data) + kBlock;
    }
  });
}

// kRows rows of the left operand, packed or as they lie in memory: their values at a depth of one
// square, then of the next.
class Packed {
 public:
  Packed(const LeftStrip& left, std::int64_t row)
      : group_(reinterpret_cast<const float*>(left.upper) + row * kBlock) {}
  float value(std::int64_t row, std::int64_t depth) const { return group_[depth * kRows + row]; }
  void next(std::int64_t step_floats) { group_ += step_floats; }

 private:
  const float* group_;
};
class InPlace {
 public:
  InPlace(const LeftStrip& left, std::int64_t row) {
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

// Vectors of a length that the compiler does not know cannot be in arrays: it finds its own.
template <class Left>
void multiply_squares(const StripProduct& p) {
  for (std::int64_t row = 0; row < p.rows; ++row) {
    for (std::int64_t square = 0; square < p.squares; ++square) {
      float* const result = p.result + square * p.result_across + row * p.result_stride;
      const auto* right = reinterpret_cast<const float*>(p.right + square * p.right_across);
      if (p.start == StripProduct::Start::zero) std::fill(result, result + kBlock, 0.0F);
      Left left(p.left, row / kRows * kRows);
      for (std::int64_t step = 0; step < p.steps; ++step) {
        for (std::int64_t depth = 0; depth < kBlock; ++depth, right += kBlock) {
          const float value = left.value(row % kRows, depth);
          for (std::int64_t i = 0; i < kBlock; ++i) result[i] += value * right[i];
        }
        left.next(p.left.step_bytes / 4);
      }
    }
  }
}

#else

// `count` vectors of columns side by side, which may lie in neighbouring squares.
template <std::int64_t count>
struct Columns {
  const float* right[count];
  float* result[count];  ///< in the first row of the square

  Columns(const StripProduct& p, std::int64_t vector) {
    for (std::int64_t j = 0; j < count; ++j) {
      const std::int64_t square = (vector + j) * kLanes / kBlock;
      const std::int64_t within = (vector + j) * kLanes % kBlock;
      right[j] = reinterpret_cast<const float*>(p.right + square * p.right_across) + within;
      result[j] = p.result + square * p.result_across + within;
    }
  }
};

// kRows rows from `row` on and `count` vectors of columns.
template <class Left, std::int64_t count>
HWY_INLINE void multiply_registers(const StripProduct& p, Columns<count> columns,
                                   std::int64_t row) {
  const Floats d;
  hn::Vec<Floats> sums[kRows][count];
  const bool zero = p.start == StripProduct::Start::zero;
  const std::int64_t first = row * p.result_stride;
#pragma GCC unroll 8
  for (std::int64_t i = 0; i < kRows; ++i) {
#pragma GCC unroll 3
    for (std::int64_t j = 0; j < count; ++j) {
      const float* from = columns.result[j] + first + i * p.result_stride;
      sums[i][j] = zero ? hn::Zero(d) : hn::LoadU(d, from);
    }
  }
  Left left(p.left, row);
  for (std::int64_t step = 0; step < p.steps; ++step) {
#pragma GCC unroll 4
    for (std::int64_t depth = 0; depth < kBlock; ++depth) {
      hn::Vec<Floats> right[count];
#pragma GCC unroll 3
      for (std::int64_t j = 0; j < count; ++j) {
        right[j] = hn::Load(d, columns.right[j] + depth * kBlock);
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
    left.next(p.left.step_bytes / 4);
#pragma GCC unroll 3
    for (std::int64_t j = 0; j < count; ++j) columns.right[j] += kResultFloats;
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
void multiply_columns(const StripProduct& p, std::int64_t vector) {
  const Columns<count> columns(p, vector);
  for (std::int64_t row = 0; row < p.rows; row += kRows) {
    multiply_registers<Left, count>(p, columns, row);
  }
}

template <class Left>
void multiply_squares(const StripProduct& p) {
  const std::int64_t vectors = p.squares * (kBlock / kLanes);
  for (std::int64_t vector = 0; vector < vectors;) {
    const std::int64_t rest = vectors - vector;
    const bool two = rest == 2 || rest == 4;  // no vector is left alone
    two ? multiply_columns<Left, 2>(p, vector) : multiply_columns<Left, kVectors>(p, vector);
    vector += two ? 2 : kVectors;
  }
}

#endif

void multiply_any(const StripProduct& p) {
  if (p.left.row_bytes == 0) {
    multiply_squares<Packed>(p);
  } else {
    multiply_squares<InPlace>(p);
  }
}

template <typename T, typename B>
void store_rows_of(const float* result, const Destination& to) {
  const Floats d;
  const auto* bias = static_cast<const B*>(to.bias);
  for (std::int64_t row = 0; row < to.rows; ++row, result += kBlock) {
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
  with_type(to.dtype, [&](auto type) {
    with_type(to.bias_dtype, [&](auto bias) {
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

void nothing() {}
void pack(Form form, const Patch& patch, std::byte* to, std::int64_t step) {
  HWY_DYNAMIC_DISPATCH(pack_any)(form, patch, to, step);
}
void multiply(const StripProduct& product) { HWY_DYNAMIC_DISPATCH(multiply_any)(product); }
void store(const float* result, const Destination& to) {
  HWY_DYNAMIC_DISPATCH(store_any)(result, to);
}

}  // namespace

const Kernels& float_kernels() {
  static constexpr Kernels kernels{.square_bytes = kResultFloats * 4,
                                   .left_bytes = 0,
                                   .squares = 3,  // whole threes of vectors, however long
                                   .left_in_place = Kernels::InPlace::narrow,
                                   .begin = nothing,
                                   .end = nothing,
                                   .pack = pack,
                                   .multiply = multiply,
                                   .store = store};
  return kernels;
}

}  // namespace zero::cpu::packed
#endif  // HWY_ONCE
