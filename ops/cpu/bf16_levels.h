// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

// Codes of stored weights as vectors of bf16 levels: for bf16_dot_product.cpp alone, which is
// compiled for processors that the rest of the build need not have.

#include <immintrin.h>

#include <cstddef>
#include <cstdint>

#include "ops/cpu/bf16_pairs.h"

namespace zero::cpu {
namespace {

constexpr int kColumns = 32;
constexpr int kLanes = 16;
constexpr std::int64_t kLine = 64;  // bytes

// The bytes of bf16 that hold 0 to 127, low ones first.
struct Integers {
  alignas(kLine) std::uint8_t low[128];
  alignas(kLine) std::uint8_t high[128];

  constexpr Integers() : low(), high() {
    for (unsigned i = 1; i < 128; ++i) {
      unsigned exponent = 0;
      while (i >> (exponent + 1) != 0) ++exponent;
      const unsigned bits = ((127 + exponent) << 7) | ((i << (7 - exponent)) & 0x7fU);
      low[i] = static_cast<std::uint8_t>(bits);
      high[i] = static_cast<std::uint8_t>(bits >> 8);
    }
  }
};
constexpr Integers kIntegers;

// 32 codes of 8 bits, exactly.
__m512bh widen(const std::byte* codes) {
  const auto* const from = reinterpret_cast<const __m128i*>(codes);
  const __m512 low = _mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(_mm_loadu_si128(from)));
  const __m512 high = _mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(_mm_loadu_si128(from + 1)));
  return _mm512_cvtne2ps_pbh(high, low);
}

// 64 of them by looking up bytes, in half the instructions (Zen 4 alone converts faster, for more
// than two rows). Columns come in fours: the first of each eight, then the others.
struct Fours {
  __m512bh level[2];

  [[gnu::always_inline]] explicit Fours(const std::byte* from) {
    const __m512i codes = _mm512_loadu_si512(from);
    const __m512i size = _mm512_abs_epi8(codes);
    const auto look_up = [&](const std::uint8_t* table) __attribute__((always_inline)) {
      return _mm512_permutex2var_epi8(_mm512_load_si512(table), size,
                                      _mm512_load_si512(table + kLine));
    };
    constexpr int kOrAnd = 0xf8;  // a | (b & c)
    const __m512i low = look_up(kIntegers.low);
    const __m512i high =
        _mm512_ternarylogic_epi32(look_up(kIntegers.high), codes, _mm512_set1_epi8(-128), kOrAnd);
    level[0] = pairs(_mm512_unpacklo_epi8(low, high));
    level[1] = pairs(_mm512_unpackhi_epi8(low, high));
  }
  // Puts sums of columns in their order.
  [[gnu::always_inline]] static void order(__m512 (&sums)[2]) {
    const __m512i first = _mm512_set_epi64(11, 10, 3, 2, 9, 8, 1, 0);
    const __m512i second = _mm512_set_epi64(15, 14, 7, 6, 13, 12, 5, 4);
    const auto fours = [](__m512 sum) __attribute__((always_inline)) {
      return _mm512_castps_pd(sum);
    };
    const __m512d low = fours(sums[0]);
    const __m512d high = fours(sums[1]);
    sums[0] = _mm512_castpd_ps(_mm512_permutex2var_pd(low, first, high));
    sums[1] = _mm512_castpd_ps(_mm512_permutex2var_pd(low, second, high));
  }
};

// The levels of 128 codes of 4 bits. Lanes choose by their low 5 bits; the fifth does not matter.
struct Looked {
  __m512bh level[4];

  [[gnu::always_inline]] Looked(const void* levels, const std::byte* from) {
    const __m512i table =
        _mm512_broadcast_i64x4(_mm256_loadu_si256(static_cast<const __m256i*>(levels)));
    const __m512i codes = _mm512_loadu_si512(from);
    level[0] = pairs(_mm512_permutexvar_epi16(codes, table));
    level[1] = pairs(_mm512_permutexvar_epi16(_mm512_srli_epi16(codes, 4), table));
    level[2] = pairs(_mm512_permutexvar_epi16(_mm512_srli_epi16(codes, 8), table));
    level[3] = pairs(_mm512_permutexvar_epi16(_mm512_srli_epi16(codes, 12), table));
  }
};

// Likewise, less the zero points of their columns: lanes choose among 32 levels by all 5 bits.
struct LookedSigned {
  __m512bh level[4];

  [[gnu::always_inline]] LookedSigned(const void* levels, const __m512i (&origins)[2],
                                      const std::byte* from) {
    const __m512i table = _mm512_loadu_si512(levels);
    const __m512i bits = _mm512_set1_epi16(15);
    const __m512i codes = _mm512_loadu_si512(from);
    const auto look_up = [&](__m512i shifted, const __m512i& origin)
        __attribute__((always_inline)) {
      const __m512i from_origin = _mm512_add_epi16(_mm512_and_si512(shifted, bits), origin);
      return pairs(_mm512_permutexvar_epi16(from_origin, table));
    };
    level[0] = look_up(codes, origins[0]);
    level[1] = look_up(_mm512_srli_epi16(codes, 4), origins[1]);
    level[2] = look_up(_mm512_srli_epi16(codes, 8), origins[0]);
    level[3] = look_up(_mm512_srli_epi16(codes, 12), origins[1]);
  }
};

// Where levels of 32 columns in a group begin among the signed ones: 16 less their zero points, for
// both depths of a pair.
[[gnu::always_inline]] inline void load_origins(const std::uint8_t* zeros_of_group,
                                                __m512i (&origins)[2]) {
#pragma GCC unroll 2
  for (int half = 0; half < 2; ++half) {
    const auto* const from = reinterpret_cast<const __m128i*>(zeros_of_group + half * kLanes);
    const __m512i zeros = _mm512_cvtepu8_epi32(_mm_loadu_si128(from));
    const __m512i both = _mm512_or_si512(zeros, _mm512_slli_epi32(zeros, 16));
    origins[half] = _mm512_sub_epi16(_mm512_set1_epi16(16), both);
  }
}

}  // namespace
}  // namespace zero::cpu
