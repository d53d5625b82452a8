// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0

// Compiled for processors with AVX-512 and bf16, whatever the target of the rest of the build: only
// intrinsics here, no inline function that the linker could share with another file.
#include "inference/cpu/pair_rows.h"

#ifdef __AVX512BF16__

#include <immintrin.h>

namespace zero::cpu {

namespace {

constexpr int kColumns = 32;
constexpr int kLanes = 16;
constexpr std::int64_t kLine = 64;         // bytes
constexpr std::int64_t kHalfBytes = 1024;  // of a square of bf16
constexpr int kMostRows = 8;               // whose sums fit the registers
// Bytes from what is read to what is fetched meanwhile.
constexpr std::int64_t kAhead = 2048;

// A pair of bf16, of any alignment.
using Unaligned [[gnu::may_alias, gnu::aligned(2)]] = std::int32_t;

__m512bh pairs(__m512i bits) { return reinterpret_cast<__m512bh>(bits); }
__m512bh broadcast_pair(const std::byte* from) {
  return pairs(_mm512_set1_epi32(*reinterpret_cast<const Unaligned*>(from)));
}

// 32 codes of 8 bits, exactly.
__m512bh widen(const std::byte* codes) {
  const auto* const from = reinterpret_cast<const __m128i*>(codes);
  const __m512 low = _mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(_mm_loadu_si128(from)));
  const __m512 high = _mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(_mm_loadu_si128(from + 1)));
  return _mm512_cvtne2ps_pbh(high, low);
}

// The levels of 128 codes of 4 bits. Lanes choose by their low 5 bits, of which the fifth does not
// matter.
struct Looked {
  __m512bh level[4];

  [[gnu::always_inline]] Looked(const PairRows& p, const std::byte* from) {
    const __m512i table =
        _mm512_broadcast_i64x4(_mm256_loadu_si256(static_cast<const __m256i*>(p.level_of_code)));
    const __m512i codes = _mm512_loadu_si512(from);
    level[0] = pairs(_mm512_permutexvar_epi16(codes, table));
    level[1] = pairs(_mm512_permutexvar_epi16(_mm512_srli_epi16(codes, 4), table));
    level[2] = pairs(_mm512_permutexvar_epi16(_mm512_srli_epi16(codes, 8), table));
    level[3] = pairs(_mm512_permutexvar_epi16(_mm512_srli_epi16(codes, 12), table));
  }
};

struct Bf16 {
  static constexpr std::int64_t kBytes = 2 * kHalfBytes;  // of a square
};
struct Int8 {
  static constexpr std::int64_t kBytes = 1024;
};
struct Bits4 {
  static constexpr std::int64_t kBytes = 512;
};

template <int kRows>
struct Sums {
  __m512 row[kRows][2];
};

template <int kRows>
[[gnu::always_inline]] inline void add_pair(Sums<kRows>& sums, const std::byte* x,
                                            std::int64_t row_bytes, __m512bh first,
                                            __m512bh second) {
#pragma GCC unroll 8
  for (int row = 0; row < kRows; ++row) {
    const __m512bh value = broadcast_pair(x + row * row_bytes);
    sums.row[row][0] = _mm512_dpbf16_ps(sums.row[row][0], value, first);
    sums.row[row][1] = _mm512_dpbf16_ps(sums.row[row][1], value, second);
  }
}

// Adds the products of a square.
template <int kRows>
[[gnu::always_inline]] inline void add_square(Bf16 /*levels*/, const PairRows& p,
                                              const std::byte* square, const std::byte* x,
                                              Sums<kRows>& sums) {
  // In the order of memory, which is read fastest so.
#pragma GCC unroll 2
  for (int half = 0; half < 2; ++half) {
    for (int pair = 0; pair < kLanes; ++pair, square += kLine) {
      _mm_prefetch(square + kAhead, _MM_HINT_T0);
      const __m512bh levels = pairs(_mm512_loadu_si512(square));
#pragma GCC unroll 8
      for (int row = 0; row < kRows; ++row) {
        sums.row[row][half] = _mm512_dpbf16_ps(
            sums.row[row][half], broadcast_pair(x + row * p.row_bytes + pair * 4), levels);
      }
    }
  }
}

template <int kRows>
[[gnu::always_inline]] inline void add_square(Int8 /*levels*/, const PairRows& p,
                                              const std::byte* square, const std::byte* x,
                                              Sums<kRows>& sums) {
  for (int pair = 0; pair < kLanes; ++pair, square += kLine) {
    _mm_prefetch(square + kAhead, _MM_HINT_T0);
    add_pair(sums, x + pair * 4, p.row_bytes, widen(square), widen(square + kLine / 2));
  }
}

template <int kRows>
[[gnu::always_inline]] inline void add_square(Bits4 /*levels*/, const PairRows& p,
                                              const std::byte* square, const std::byte* x,
                                              Sums<kRows>& sums) {
  for (const std::byte* const end = square + Bits4::kBytes; square < end; square += kLine, x += 8) {
    _mm_prefetch(square + kAhead, _MM_HINT_T0);
    const Looked four(p, square);
    add_pair(sums, x, p.row_bytes, four.level[0], four.level[1]);
    add_pair(sums, x + 4, p.row_bytes, four.level[2], four.level[3]);
  }
}

// The scales of 16 columns, from `column` on.
__m512 load_scales(const PairRows& p, std::int64_t group, int column) {
  const std::int64_t at = group * kColumns + column;
  if (p.scale == PairRows::Scales::fp32) {
    return _mm512_loadu_ps(static_cast<const float*>(p.scales) + at);
  }
  if (p.scale == PairRows::Scales::fp16) {
    return _mm512_cvtph_ps(_mm256_loadu_si256(
        reinterpret_cast<const __m256i*>(static_cast<const std::uint16_t*>(p.scales) + at)));
  }
  const __m128i codes = _mm_loadu_si128(
      reinterpret_cast<const __m128i*>(static_cast<const std::uint8_t*>(p.scales) + at));
  const float* const range = p.ranges + group / PairRows::kGroupsOfRange * 2;
  const __m512 steps =
      _mm512_mul_ps(_mm512_cvtepi32_ps(_mm512_cvtepu8_epi32(codes)), _mm512_set1_ps(range[1]));
  return _mm512_add_ps(steps, _mm512_set1_ps(range[0]));
}

// Adds the sums of a group, times its scales, to those of the groups before it.
template <int kRows>
[[gnu::always_inline]] inline void add_group(const PairRows& p, std::int64_t group,
                                             const Sums<kRows>& of_group, float* sums) {
  const bool scaled = p.scale != PairRows::Scales::none;
  const __m512 first = scaled ? load_scales(p, group, 0) : _mm512_setzero_ps();
  const __m512 second = scaled ? load_scales(p, group, kLanes) : _mm512_setzero_ps();
#pragma GCC unroll 8
  for (int row = 0; row < kRows; ++row, sums += kColumns) {
    const auto put = [&](__m512 sum, __m512 scale, float* to) __attribute__((always_inline)) {
      if (scaled) {
        sum = _mm512_fmadd_ps(sum, scale, group == 0 ? _mm512_setzero_ps() : _mm512_load_ps(to));
      }
      _mm512_store_ps(to, sum);
    };
    put(of_group.row[row][0], first, sums);
    put(of_group.row[row][1], second, sums + kLanes);
  }
  // The sums stay in memory: there are no registers left for them.
  __asm__ volatile("" ::: "memory");
}

template <class Levels, int kRows>
void multiply_rows(const PairRows& p, const std::byte* x, float* sums) {
  const std::byte* square = p.squares;
  const std::int64_t group_steps = p.group_steps > 0 ? p.group_steps : p.steps;
  std::int64_t left = p.steps;
  for (std::int64_t group = 0; left > 0; ++group, left -= group_steps) {
    Sums<kRows> of_group;
#pragma GCC unroll 8
    for (auto& row : of_group.row) row[0] = row[1] = _mm512_setzero_ps();
    const std::int64_t steps = left < group_steps ? left : group_steps;
    for (const std::byte* const end = square + steps * Levels::kBytes; square < end;
         square += Levels::kBytes, x += 2 * kColumns) {
      add_square(Levels(), p, square, x, of_group);
    }
    add_group(p, group, of_group, sums);
  }
}

template <class Levels>
void multiply_some(const PairRows& p, std::int64_t rows, const std::byte* x, float* sums) {
  switch (rows) {
    case 1:
      return multiply_rows<Levels, 1>(p, x, sums);
    case 2:
      return multiply_rows<Levels, 2>(p, x, sums);
    case 3:
      return multiply_rows<Levels, 3>(p, x, sums);
    case 4:
      return multiply_rows<Levels, 4>(p, x, sums);
    case 5:
      return multiply_rows<Levels, 5>(p, x, sums);
    case 6:
      return multiply_rows<Levels, 6>(p, x, sums);
    case 7:
      return multiply_rows<Levels, 7>(p, x, sums);
    default:
      return multiply_rows<Levels, kMostRows>(p, x, sums);
  }
}

template <class Levels>
void multiply_all(const PairRows& p) {
  for (std::int64_t row = 0; row < p.rows; row += kMostRows) {
    const std::int64_t rows = p.rows - row < kMostRows ? p.rows - row : kMostRows;
    multiply_some<Levels>(p, rows, p.x + row * p.row_bytes, p.sums + row * kColumns);
  }
}

}  // namespace

void multiply_pair_rows(const PairRows& p) {
  switch (p.levels) {
    case PairRows::Levels::bf16:
      return multiply_all<Bf16>(p);
    case PairRows::Levels::int8:
      return multiply_all<Int8>(p);
    case PairRows::Levels::bits4:
      return multiply_all<Bits4>(p);
  }
}

void look_up_pairs(const PairRows& p, std::byte* to) {
  const auto put = [](std::byte* at, __m512bh first, __m512bh second) {
    _mm512_store_si512(at, reinterpret_cast<__m512i>(first));
    _mm512_store_si512(at + kHalfBytes, reinterpret_cast<__m512i>(second));
  };
  const std::byte* from = p.squares;
  for (std::int64_t step = 0; step < p.steps; ++step, to += Bf16::kBytes) {
    if (p.levels == PairRows::Levels::int8) {
      for (std::int64_t at = 0; at < kHalfBytes; at += kLine, from += kLine) {
        put(to + at, widen(from), widen(from + kLine / 2));
      }
    } else {
      for (std::int64_t at = 0; at < kHalfBytes; at += 2 * kLine, from += kLine) {
        const Looked four(p, from);
        put(to + at, four.level[0], four.level[1]);
        put(to + at + kLine, four.level[2], four.level[3]);
      }
    }
  }
}

}  // namespace zero::cpu

#else

namespace zero::cpu {

void multiply_pair_rows(const PairRows& /*product*/) {}
void look_up_pairs(const PairRows& /*product*/, std::byte* /*to*/) {}

}  // namespace zero::cpu

#endif
