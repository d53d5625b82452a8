// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0

// Compiled for processors with AVX-512 and bf16, whatever the target of the rest of the build: only
// intrinsics here, no inline function that the linker could share with another file.
#include "ops/cpu/bf16_dot_product.h"

#ifdef __AVX512BF16__

#include <immintrin.h>

#include <type_traits>

#include "ops/cpu/bf16_pairs.h"

namespace zero::cpu {

namespace {

constexpr int kColumns = 32;
constexpr int kLanes = 16;
constexpr std::int64_t kLine = 64;         // bytes
constexpr std::int64_t kHalfBytes = 1024;  // of a tile of bf16
constexpr int kMostRows = 8;               // whose sums fit the registers
constexpr int kUnrolled = 8;               // vectors of plain tiles
constexpr std::int64_t kAhead = 8192;      // bytes from what is read to what is fetched: measured
constexpr int kSharing = 2;                // sweeps that fetch a share each of the next tiles
// What is fetched during a sweep, into the second cache, which waits for more lines of memory at a
// time than the first.
enum class Fetch : std::uint8_t {
  nothing,
  ahead,  // what comes kAhead later in these tiles and behind them
  share,  // of the next tiles: memory is read while rows multiply
};
template <Fetch kFetch>
[[gnu::always_inline]] inline void fetch_ahead(const std::byte* from) {
  if constexpr (kFetch == Fetch::ahead) _mm_prefetch(from + kAhead, _MM_HINT_T1);
}
template <class Levels, Fetch kFetch>
[[gnu::always_inline]] inline void fetch_share(const std::byte* share, int pair) {
  constexpr std::int64_t kPairBytes = Levels::kBytes / (kSharing * kLanes);
  if constexpr (kFetch == Fetch::share) {
    if (pair * kPairBytes % kLine == 0) {
      _mm_prefetch(share + pair * kPairBytes, _MM_HINT_T1);
    }
  }
}

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

  [[gnu::always_inline]] Looked(const Bf16DotProduct& p, const std::byte* from) {
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
  static constexpr std::int64_t kBytes = 2 * kHalfBytes;  // of a tile
};
// Both halves of a tile side by side: a row's value serves two vectors, which pays for more rows
// than are multiplied at a time.
struct SideBySide : Bf16 {};
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

// Adds the products of a tile.
template <int kRows, Fetch kFetch>
[[gnu::always_inline]] inline void add_tile(Bf16 /*levels*/, const Bf16DotProduct& p,
                                            const std::byte* tile, const std::byte* /*share*/,
                                            const std::byte* x, Sums<kRows>& sums) {
  // In the order of memory, which is read fastest so.
#pragma GCC unroll 2
  for (int half = 0; half < 2; ++half) {
#pragma GCC unroll kUnrolled
    for (int pair = 0; pair < kLanes; ++pair, tile += kLine) {
      fetch_ahead<kFetch>(tile);
      const __m512bh levels = pairs(_mm512_loadu_si512(tile));
#pragma GCC unroll 8
      for (int row = 0; row < kRows; ++row) {
        sums.row[row][half] = _mm512_dpbf16_ps(
            sums.row[row][half], broadcast_pair(x + row * p.row_bytes + pair * 4), levels);
      }
    }
  }
}

template <int kRows, Fetch kFetch>
[[gnu::always_inline]] inline void add_tile(SideBySide /*levels*/, const Bf16DotProduct& p,
                                            const std::byte* tile, const std::byte* share,
                                            const std::byte* x, Sums<kRows>& sums) {
#pragma GCC unroll 4
  for (int pair = 0; pair < kLanes; ++pair, tile += kLine, x += 4) {
    fetch_share<SideBySide, kFetch>(share, pair);
    add_pair(sums, x, p.row_bytes, pairs(_mm512_loadu_si512(tile)),
             pairs(_mm512_loadu_si512(tile + kHalfBytes)));
  }
}

template <int kRows, Fetch kFetch>
[[gnu::always_inline]] inline void add_tile(Int8 /*levels*/, const Bf16DotProduct& p,
                                            const std::byte* tile, const std::byte* share,
                                            const std::byte* x, Sums<kRows>& sums) {
  for (int pair = 0; pair < kLanes; ++pair, tile += kLine) {
    fetch_ahead<kFetch>(tile);
    fetch_share<Int8, kFetch>(share, pair);
    const Fours fours(tile);
    add_pair(sums, x + pair * 4, p.row_bytes, fours.level[0], fours.level[1]);
  }
}

template <int kRows, Fetch kFetch>
[[gnu::always_inline]] inline void add_tile(Bits4 /*levels*/, const Bf16DotProduct& p,
                                            const std::byte* tile, const std::byte* share,
                                            const std::byte* x, Sums<kRows>& sums) {
  for (int pair = 0; pair < kLanes; pair += 2, tile += kLine, x += 8) {
    fetch_ahead<kFetch>(tile);
    fetch_share<Bits4, kFetch>(share, pair);
    const Looked four(p, tile);
    add_pair(sums, x, p.row_bytes, four.level[0], four.level[1]);
    add_pair(sums, x + 4, p.row_bytes, four.level[2], four.level[3]);
  }
}

// The scales of 16 columns, from `column` on.
__m512 load_scales(const Bf16DotProduct& p, std::int64_t group, int column) {
  const std::int64_t at = group * kColumns + column;
  if (p.scale == Bf16DotProduct::Scales::fp32) {
    return _mm512_loadu_ps(static_cast<const float*>(p.scales) + at);
  }
  if (p.scale == Bf16DotProduct::Scales::fp16) {
    return _mm512_cvtph_ps(_mm256_loadu_si256(
        reinterpret_cast<const __m256i*>(static_cast<const std::uint16_t*>(p.scales) + at)));
  }
  const __m128i codes = _mm_loadu_si128(
      reinterpret_cast<const __m128i*>(static_cast<const std::uint8_t*>(p.scales) + at));
  const float* const range = p.ranges + group / Bf16DotProduct::kGroupsOfRange * 2;
  const __m512 scaled =
      _mm512_mul_ps(_mm512_cvtepi32_ps(_mm512_cvtepu8_epi32(codes)), _mm512_set1_ps(range[1]));
  return _mm512_add_ps(scaled, _mm512_set1_ps(range[0]));
}

// Adds the sums of a group, times its scales, to those of the groups before it.
template <int kRows>
[[gnu::always_inline]] inline void add_group(const Bf16DotProduct& p, std::int64_t group,
                                             const Sums<kRows>& of_group, float* sums) {
  const bool scaled = p.scale != Bf16DotProduct::Scales::none;
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

template <class Levels, int kRows, Fetch kFetch>
void multiply_rows(const Bf16DotProduct& p, const std::byte* share, const std::byte* x,
                   float* sums) {
  const std::byte* tile = p.tiles;
  const std::int64_t group_tiles = p.group_tiles > 0 ? p.group_tiles : p.depth_tiles;
  std::int64_t left = p.depth_tiles;
  for (std::int64_t group = 0; left > 0; ++group, left -= group_tiles) {
    Sums<kRows> of_group;
#pragma GCC unroll 8
    for (auto& row : of_group.row) row[0] = row[1] = _mm512_setzero_ps();
    const std::int64_t depth_tiles = left < group_tiles ? left : group_tiles;
    for (const std::byte* const end = tile + depth_tiles * Levels::kBytes; tile < end;
         tile += Levels::kBytes, x += 2 * kColumns) {
      add_tile<kRows, kFetch>(Levels(), p, tile, share, x, of_group);
      if constexpr (kFetch == Fetch::share) share += Levels::kBytes / kSharing;
    }
    if constexpr (std::is_same_v<Levels, Int8>) {
#pragma GCC unroll 8
      for (auto& row : of_group.row) Fours::order(row);
    }
    add_group(p, group, of_group, sums);
  }
}

template <class Levels, Fetch kFetch, int kRows = kMostRows>
void multiply_some(const Bf16DotProduct& p, const std::byte* share, std::int64_t rows,
                   const std::byte* x, float* sums) {
  if constexpr (kRows > 1) {
    if (rows < kRows) {
      return multiply_some<Levels, kFetch, kRows - 1>(p, share, rows, x, sums);
    }
  }
  multiply_rows<Levels, kRows, kFetch>(p, share, x, sums);
}

template <class Levels>
void multiply_all(const Bf16DotProduct& p) {
  using ForMany = std::conditional_t<std::is_same_v<Levels, Bf16>, SideBySide, Levels>;
  if (p.rows <= kMostRows) {
    return multiply_some<Levels, Fetch::ahead>(p, nullptr, p.rows, p.x, p.sums);
  }
  for (std::int64_t row = 0; row < p.rows; row += kMostRows) {
    const std::int64_t rows = p.rows - row < kMostRows ? p.rows - row : kMostRows;
    const std::byte* const x = p.x + row * p.row_bytes;
    float* const sums = p.sums + row * kColumns;
    const std::int64_t sweep = row / kMostRows;
    if (p.next != nullptr && sweep < kSharing) {
      const std::byte* const share = p.next + sweep * p.depth_tiles * Levels::kBytes / kSharing;
      multiply_some<ForMany, Fetch::share>(p, share, rows, x, sums);
    } else {
      multiply_some<ForMany, Fetch::nothing>(p, nullptr, rows, x, sums);
    }
  }
}

// Calls put(levels of 16 columns, of 16 more, group, where the first lie as Levels::bf16) for each
// pair of depths.
template <class Put>
[[gnu::always_inline]] inline void for_each_pair(const Bf16DotProduct& p, std::byte* to,
                                                 const Put& put) {
  const std::byte* from = p.tiles;
  for (std::int64_t step = 0; step < p.depth_tiles; ++step, to += Bf16::kBytes) {
    const std::int64_t group = p.group_tiles > 0 ? step / p.group_tiles : 0;
    if (p.levels == Bf16DotProduct::Levels::int8) {
      for (std::int64_t at = 0; at < kHalfBytes; at += kLine, from += kLine) {
        put(widen(from), widen(from + kLine / 2), group, to + at);
      }
    } else {
      for (std::int64_t at = 0; at < kHalfBytes; at += 2 * kLine, from += kLine) {
        const Looked four(p, from);
        put(four.level[0], four.level[1], group, to + at);
        put(four.level[2], four.level[3], group, to + at + kLine);
      }
    }
  }
}

// Pairs of levels times the scales of their columns.
__m512i times_scales(__m512bh levels, __m512 scales) {
  const auto bits = reinterpret_cast<__m512i>(levels);
  const __m512i high = _mm512_set1_epi32(static_cast<int>(0xffff0000U));
  const __m512 even = _mm512_castsi512_ps(_mm512_slli_epi32(bits, 16));
  const __m512 odd = _mm512_castsi512_ps(_mm512_and_si512(bits, high));
  const __m512bh apart =
      _mm512_cvtne2ps_pbh(_mm512_mul_ps(odd, scales), _mm512_mul_ps(even, scales));
  return _mm512_permutexvar_epi16(interleaved_indices(0, kLanes), reinterpret_cast<__m512i>(apart));
}

}  // namespace

void multiply_bf16(const Bf16DotProduct& p) {
  switch (p.levels) {
    case Bf16DotProduct::Levels::bf16:
      return multiply_all<Bf16>(p);
    case Bf16DotProduct::Levels::int8:
      return multiply_all<Int8>(p);
    case Bf16DotProduct::Levels::bits4:
      return multiply_all<Bits4>(p);
  }
}

void look_up_pairs(const Bf16DotProduct& p, std::byte* to) {
  for_each_pair(p, to, [](__m512bh first, __m512bh second, std::int64_t /*group*/, std::byte* at) {
    _mm512_store_si512(at, reinterpret_cast<__m512i>(first));
    _mm512_store_si512(at + kHalfBytes, reinterpret_cast<__m512i>(second));
  });
}

void widen_pairs(const Bf16DotProduct& p, std::byte* to) {
  for_each_pair(p, to, [&](__m512bh first, __m512bh second, std::int64_t group, std::byte* at) {
    _mm512_store_si512(at, times_scales(first, load_scales(p, group, 0)));
    _mm512_store_si512(at + kHalfBytes, times_scales(second, load_scales(p, group, kLanes)));
  });
}

}  // namespace zero::cpu

#else

namespace zero::cpu {

void multiply_bf16(const Bf16DotProduct& /*product*/) {}
void look_up_pairs(const Bf16DotProduct& /*codes*/, std::byte* /*to*/) {}
void widen_pairs(const Bf16DotProduct& /*codes*/, std::byte* /*to*/) {}

}  // namespace zero::cpu

#endif
