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
// A kernel's sums, two vectors a row, and what is multiplied must fit the registers: there are 32
// with AVX-512 and NEON, 16 elsewhere.
inline constexpr std::int64_t kRows = HWY_ARCH_ARM || kLanes == 16 ? 8 : 4;
inline constexpr std::int64_t kVectors = 2;
inline constexpr std::int64_t kRowBytes = kBlock * 4;

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

// Four columns of Lanes(d) rows become rows.
HWY_INLINE void transpose_fours(const float* from, std::int64_t stride, float* to) {
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
  hn::Store(hn::BitCast(d, hn::InterleaveLower(pairs, low01, low23)), d, to);
  hn::Store(hn::BitCast(d, hn::InterleaveUpper(pairs, low01, low23)), d, to + kBlock);
  hn::Store(hn::BitCast(d, hn::InterleaveLower(pairs, high01, high23)), d, to + 2 * kBlock);
  hn::Store(hn::BitCast(d, hn::InterleaveUpper(pairs, high01, high23)), d, to + 3 * kBlock);
}

void transpose_square(const float* from, std::int64_t stride, float* to) {
  for (std::int64_t row = 0; row < kBlock; row += kLanes) {
    for (std::int64_t column = 0; column < kBlock; column += 4) {
      transpose_fours(from + row * stride + column, stride, to + column * kBlock + row);
    }
  }
}

#endif

template <typename T>
void pack_transposed(const Patch& square, float* to) {
  const bool whole = square.rows >= kBlock && square.columns >= kBlock;
  if constexpr (std::is_same_v<T, float>) {
    if (whole) return transpose_square(static_cast<const T*>(square.data), square.stride, to);
  }
  HWY_ALIGN float aside[kResultFloats];
  copy_square<T>(square, aside);
  transpose_square(aside, kBlock, to);
}

void pack_any(Form form, const Patch& patch, std::byte* to, std::int64_t step) {
  with_type(patch.dtype, [&](auto type) {
    using T = typename decltype(type)::type;
    Patch square = patch;
    for (; square.columns > 0; square.columns -= kBlock, to += step) {
      if (form == Form::right_transposed || form == Form::left_transposed) {
        pack_transposed<T>(square, reinterpret_cast<float*>(to));
      } else {
        copy_square<T>(square, reinterpret_cast<float*>(to));
      }
      square.data = static_cast<const T*>(square.data) + kBlock;
    }
  });
}

// Floats between rows of the left operand: packed, where compilers know, and as it lies in memory.
struct Packed {
  static std::int64_t row(const LeftStrip&) { return kBlock; }
};
struct InPlace {
  static std::int64_t row(const LeftStrip& left) { return left.row_bytes / 4; }
};

#if HWY_HAVE_SCALABLE

// Vectors of a length that the compiler does not know cannot be in arrays: it finds its own.
template <class Steps>
void multiply_square(const StripProduct& p) {
  const auto* left = reinterpret_cast<const float*>(p.left.upper);
  for (std::int64_t row = 0; row < p.rows; ++row, left += Steps::row(p.left)) {
    float* const result = p.result + row * p.result_stride;
    if (p.start == StripProduct::Start::zero) std::fill(result, result + kBlock, 0.0F);
    for (std::int64_t depth = 0; depth < p.steps * kBlock; ++depth) {
      const float value = left[depth / kBlock * p.left.step_bytes / 4 + depth % kBlock];
      const float* right = reinterpret_cast<const float*>(p.right) + depth * kBlock;
      for (std::int64_t i = 0; i < kBlock; ++i) result[i] += value * right[i];
    }
  }
}

#else

// kRows rows and kVectors vectors of columns from `result` on.
template <class Steps>
HWY_INLINE void multiply_registers(const StripProduct& p, const float* left, const float* right,
                                   float* result) {
  const Floats d;
  hn::Vec<Floats> sums[kRows][kVectors];
  const bool zero = p.start == StripProduct::Start::zero;
#pragma GCC unroll 8
  for (std::int64_t i = 0; i < kRows; ++i) {
#pragma GCC unroll 2
    for (std::int64_t j = 0; j < kVectors; ++j) {
      sums[i][j] = zero ? hn::Zero(d) : hn::LoadU(d, result + i * p.result_stride + j * kLanes);
    }
  }
  const std::int64_t step_floats = p.left.step_bytes / 4;
  const float* rows[kRows];
#pragma GCC unroll 8
  for (std::int64_t i = 0; i < kRows; ++i) rows[i] = left + i * Steps::row(p.left);
  for (std::int64_t step = 0; step < p.steps; ++step) {
#pragma GCC unroll 4
    for (std::int64_t depth = 0; depth < kBlock; ++depth) {
      const auto first = hn::Load(d, right + depth * kBlock);
      const auto second = hn::Load(d, right + depth * kBlock + kLanes);
#pragma GCC unroll 8
      for (std::int64_t i = 0; i < kRows; ++i) {
        const auto value = hn::Set(d, rows[i][depth]);
        sums[i][0] = hn::MulAdd(value, first, sums[i][0]);
        sums[i][1] = hn::MulAdd(value, second, sums[i][1]);
      }
    }
#pragma GCC unroll 8
    for (std::int64_t i = 0; i < kRows; ++i) rows[i] += step_floats;
    right += kResultFloats;
  }
#pragma GCC unroll 8
  for (std::int64_t i = 0; i < kRows; ++i) {
#pragma GCC unroll 2
    for (std::int64_t j = 0; j < kVectors; ++j) {
      hn::StoreU(sums[i][j], d, result + i * p.result_stride + j * kLanes);
    }
  }
}

template <class Steps>
void multiply_square(const StripProduct& p) {
  const auto* left = reinterpret_cast<const float*>(p.left.upper);
  const auto* right = reinterpret_cast<const float*>(p.right);
  for (std::int64_t column = 0; column < kBlock; column += kVectors * kLanes) {
    for (std::int64_t row = 0; row < p.rows; row += kRows) {
      multiply_registers<Steps>(p, left + row * Steps::row(p.left), right + column,
                                p.result + row * p.result_stride + column);
    }
  }
}

#endif

void multiply_any(const StripProduct& p) {
  if (p.left.row_bytes == kRowBytes) {
    multiply_square<Packed>(p);
  } else {
    multiply_square<InPlace>(p);
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
                                   .left_bytes = kBlock * 4,
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
