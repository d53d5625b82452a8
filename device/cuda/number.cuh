// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <vector_types.h>

#include <cstdint>
#include <type_traits>

#include "base/dtype.h"
#include "base/half.h"
#include "device/cuda/launch.cuh"

/// Elements of device memory as floats: the conversions of base/half.h, bit for bit, and accesses
/// of 16 bytes. Arithmetic is in fp32; bfloat16 and float16 are storage.
namespace zero::cuda {

__device__ __forceinline__ float as_float(float value) { return value; }

__device__ __forceinline__ float as_float(bfloat16 value) {
  return __uint_as_float(static_cast<unsigned>(value.bits) << 16);
}

__device__ __forceinline__ float as_float(float16 value) {
  const unsigned bits = value.bits;
  const unsigned sign = (bits & 0x8000U) << 16;
#ifdef __CUDA_ARCH__  // one instruction, but for NaNs, whose bits it does not keep
  float result;
  asm("cvt.f32.f16 %0, %1;" : "=f"(result) : "h"(value.bits));
  const float quiet = __uint_as_float(sign | ((bits & 0x7fffU) << 13) | 0x7f800000U);
  return (bits & 0x7fffU) > 0x7c00U ? quiet : result;
#else
  const unsigned exponent = bits & 0x7c00U;
  const unsigned shifted = (bits & 0x7fffU) << 13;
  unsigned magnitude = shifted + (112U << 23);
  if (exponent == 0x7c00U) magnitude = shifted + (224U << 23);  // infinity, NaN
  if (exponent == 0) {
    magnitude = __float_as_uint(__fmul_rn(static_cast<float>(bits & 0x3ffU), 0x1p-24F));
  }
  return __uint_as_float(sign | magnitude);
#endif
}

/// `value` rounded to T, to nearest even; a NaN stays a (quiet) NaN.
template <class T>
__device__ __forceinline__ T rounded(float value) {
  const unsigned bits = __float_as_uint(value);
  const unsigned magnitude = bits & 0x7fffffffU;
  if constexpr (std::is_same_v<T, bfloat16>) {
    const unsigned even = bits + 0x7fffU + ((bits >> 16) & 1U);
    const unsigned quiet = bits | 0x400000U;
    return {static_cast<std::uint16_t>((magnitude > 0x7f800000U ? quiet : even) >> 16)};
  } else if constexpr (std::is_same_v<T, float16>) {
#ifdef __CUDA_ARCH__  // one instruction, but for NaNs, as above
    std::uint16_t result;
    asm("cvt.rn.f16.f32 %0, %1;" : "=h"(result) : "f"(value));
    const auto quiet = static_cast<std::uint16_t>(((bits >> 16) & 0x8000U) | 0x7e00U);
    return {magnitude > 0x7f800000U ? quiet : result};
#else
    unsigned half = ((magnitude + 0xfffU + ((magnitude >> 13) & 1U)) >> 13) - (112U << 10);
    // Below 2^-14, adding 0.5 rounds at 2^-24.
    if (magnitude < 0x38800000U) {
      half = __float_as_uint(__fadd_rn(__uint_as_float(magnitude), 0.5F)) - 0x3f000000U;
    }
    if (magnitude > 0x477fefffU) half = 0x7c00U;
    if (magnitude > 0x7f800000U) half = 0x7e00U;
    return {static_cast<std::uint16_t>(((bits >> 16) & 0x8000U) | half)};
#endif
  } else {
    static_assert(std::is_same_v<T, float>);
    return value;
  }
}

/// N consecutive elements as floats, in registers: index them with compile-time constants only.
template <int N>
struct Floats {
  float at[N];
};

/// The widest access for N elements of T: 16 bytes, or less if they are smaller.
template <class T, int N>
inline constexpr int kAccessBytes = N* static_cast<int>(sizeof(T)) < 16
                                        ? N* static_cast<int>(sizeof(T))
                                        : 16;

/// Whether load<N> and store<N> may be used at `data` + k * N elements. For host and device.
template <class T, int N>
__host__ __device__ __forceinline__ bool is_wide(const void* data) {
  return reinterpret_cast<std::uintptr_t>(data) % kAccessBytes<T, N> == 0;
}

namespace detail {

template <int bytes>
struct Word;
template <>
struct Word<2> {
  using type = std::uint16_t;
};
template <>
struct Word<4> {
  using type = unsigned;
};
template <>
struct Word<8> {
  using type = uint2;
};
template <>
struct Word<16> {
  using type = uint4;
};

/// One access and its elements.
template <class T, int bytes>
union Access {
  using type = typename Word<bytes>::type;
  static constexpr int kElements = bytes / static_cast<int>(sizeof(T));
  __device__ __forceinline__ Access() {}
  type word;
  T elements[kElements];
  unsigned pairs[bytes < 4 ? 1 : bytes / 4];  // of elements of two bytes
};

/// Rounds as rounded() does the elements of `access` from `values`.
template <class T, int bytes>
__device__ __forceinline__ void round_to(Access<T, bytes>& access, const float* values) {
#ifdef __CUDA_ARCH__
  if constexpr (std::is_same_v<T, bfloat16> && bytes >= 4) {
    // Two in one instruction, but for NaNs, whose bits it does not keep.
    bool nan = false;
#pragma unroll
    for (int i = 0; i < bytes / 4; ++i) {
      const float low = values[2 * i];
      const float high = values[2 * i + 1];
      asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(access.pairs[i]) : "f"(high), "f"(low));
      nan = nan || isunordered(low, high);
    }
    if (!nan) return;
  }
#endif
#pragma unroll
  for (int i = 0; i < bytes / static_cast<int>(sizeof(T)); ++i) {
    access.elements[i] = rounded<T>(values[i]);
  }
}

}  // namespace detail

/// N elements as they lie in memory, in half the registers if they are of two bytes.
template <int N, class T>
struct Packed {
  using Access = detail::Access<T, kAccessBytes<T, N>>;
  Access words[N / Access::kElements];

  __device__ __forceinline__ Floats<N> floats() const {
    Floats<N> values;
#pragma unroll
    for (int i = 0; i < N; ++i) {
      values.at[i] = as_float(words[i / Access::kElements].elements[i % Access::kElements]);
    }
    return values;
  }
};

/// N elements at `from`; requires is_wide<T, N>.
template <int N, class T>
__device__ __forceinline__ Packed<N, T> load_packed(const T* from) {
  using Access = typename Packed<N, T>::Access;
  Packed<N, T> packed;
#pragma unroll
  for (int first = 0; first < N; first += Access::kElements) {
    packed.words[first / Access::kElements].word =
        *reinterpret_cast<const typename Access::type*>(from + first);
  }
  return packed;
}
template <int N, class T>
__device__ __forceinline__ Floats<N> load(const T* from) {
  return load_packed<N>(from).floats();
}

/// Rounds N elements to `to`; requires is_wide<T, N>.
template <int N, class T>
__device__ __forceinline__ void store(const Floats<N>& values, T* to) {
  using Access = detail::Access<T, kAccessBytes<T, N>>;
#pragma unroll
  for (int first = 0; first < N; first += Access::kElements) {
    Access access;
    detail::round_to(access, values.at + first);
    *reinterpret_cast<typename Access::type*>(to + first) = access.word;
  }
}

/// The first `count` of N elements at `from`, of any alignment; the others are 0.
template <int N, class T>
__device__ __forceinline__ Floats<N> load_first(const T* from, int count) {
  Floats<N> values;
#pragma unroll
  for (int i = 0; i < N; ++i) values.at[i] = i < count ? as_float(from[i]) : 0.0F;
  return values;
}

/// The same, as they lie in memory.
template <int N, class T>
__device__ __forceinline__ Packed<N, T> load_packed_first(const T* from, int count) {
  using Access = typename Packed<N, T>::Access;
  Packed<N, T> packed;
#pragma unroll
  for (int i = 0; i < N; ++i) {
    packed.words[i / Access::kElements].elements[i % Access::kElements] = i < count ? from[i] : T{};
  }
  return packed;
}

/// Rounds the first `count` of N elements to `to`, of any alignment.
template <int N, class T>
__device__ __forceinline__ void store_first(const Floats<N>& values, T* to, int count) {
#pragma unroll
  for (int i = 0; i < N; ++i) {
    if (i < count) to[i] = rounded<T>(values.at[i]);
  }
}

}  // namespace zero::cuda
