// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0

// Compiled for processors with AVX-512 and bf16, whatever the target of the rest of the build: only
// intrinsics here, no inline function that the linker could share with another file.
#include "ops/cpu/bf16_dot_product.h"

#ifdef __AVX512BF16__

#include <immintrin.h>

#include <type_traits>

#include "ops/cpu/bf16_levels.h"
#include "ops/cpu/bf16_pairs.h"

namespace zero::cpu {

namespace {

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
struct Bits4Zeros {
  static constexpr std::int64_t kBytes = 512;
  __m512i origins[2];  // of a group
};

// What tiles of a group are multiplied with.
template <class Levels>
[[gnu::always_inline]] inline Levels levels_of(const Bf16DotProduct& p, std::int64_t group) {
  Levels levels;
  if constexpr (std::is_same_v<Levels, Bits4Zeros>)
    load_origins(p.zeros + group * kColumns, levels.origins);
  return levels;
}

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
    const Looked four(p.level_of_code, tile);
    add_pair(sums, x, p.row_bytes, four.level[0], four.level[1]);
    add_pair(sums, x + 4, p.row_bytes, four.level[2], four.level[3]);
  }
}

template <int kRows, Fetch kFetch>
[[gnu::always_inline]] inline void add_tile(const Bits4Zeros& levels, const Bf16DotProduct& p,
                                            const std::byte* tile, const std::byte* share,
                                            const std::byte* x, Sums<kRows>& sums) {
  for (int pair = 0; pair < kLanes; pair += 2, tile += kLine, x += 8) {
    fetch_ahead<kFetch>(tile);
    fetch_share<Bits4Zeros, kFetch>(share, pair);
    const LookedSigned four(p.level_of_code, levels.origins, tile);
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
    const Levels levels = levels_of<Levels>(p, group);
    for (const std::byte* const end = tile + depth_tiles * Levels::kBytes; tile < end;
         tile += Levels::kBytes, x += 2 * kColumns) {
      add_tile<kRows, kFetch>(levels, p, tile, share, x, of_group);
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
    } else if (p.levels == Bf16DotProduct::Levels::bits4_zeros) {
      const Bits4Zeros levels = levels_of<Bits4Zeros>(p, group);
      for (std::int64_t at = 0; at < kHalfBytes; at += 2 * kLine, from += kLine) {
        const LookedSigned four(p.level_of_code, levels.origins, from);
        put(four.level[0], four.level[1], group, to + at);
        put(four.level[2], four.level[3], group, to + at + kLine);
      }
    } else {
      for (std::int64_t at = 0; at < kHalfBytes; at += 2 * kLine, from += kLine) {
        const Looked four(p.level_of_code, from);
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
    case Bf16DotProduct::Levels::bits4_zeros:
      return multiply_all<Bits4Zeros>(p);
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
