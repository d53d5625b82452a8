// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

// For files of intrinsics alone, which are compiled for processors that the rest of the build need
// not have: each has its own copy, so that the linker cannot take one for others.

#include <immintrin.h>

#include <cstddef>
#include <cstdint>

namespace zero::cpu {

// A pair of bf16, of any alignment.
using UnalignedPair [[gnu::may_alias, gnu::aligned(2)]] = std::int32_t;

[[gnu::always_inline]] static inline __m512bh pairs(__m512i bits) {
  return reinterpret_cast<__m512bh>(bits);
}
[[gnu::always_inline]] static inline __m512bh broadcast_pair(const void* from) {
  return pairs(_mm512_set1_epi32(*static_cast<const UnalignedPair*>(from)));
}

// The first `count` lanes of 16 bits.
[[gnu::always_inline]] static inline __mmask32 first_lanes(std::int64_t count) {
  return count >= 32 ? 0xffffffffU : (__mmask32{1} << count) - 1U;
}

// For lanes of 16 bits: the even ones from `even` on, the odd ones from `odd` on.
[[gnu::always_inline]] static inline __m512i interleaved_indices(int even, int odd) {
  const __m512i i = _mm512_set_epi32(15, 14, 13, 12, 11, 10, 9, 8, 7, 6, 5, 4, 3, 2, 1, 0);
  return _mm512_or_si512(_mm512_add_epi32(i, _mm512_set1_epi32(even)),
                         _mm512_slli_epi32(_mm512_add_epi32(i, _mm512_set1_epi32(odd)), 16));
}

}  // namespace zero::cpu
