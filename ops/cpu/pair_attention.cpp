// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0

// Only intrinsics, as bf16_dot_product.cpp.
#include "ops/cpu/pair_attention.h"

#ifdef __AVX512BF16__

#include <immintrin.h>

#include "ops/cpu/bf16_pairs.h"

namespace zero::cpu {

namespace {

constexpr std::int64_t kLine = 64;  // bytes: 32 bf16
constexpr int kLanes = 16;

// Scores of some chunks from `chunk` on.
template <int kRows, int kChunks>
void score(const PairAttention& a, std::int64_t chunk) {
  __m512 sums[kRows][kChunks];
#pragma GCC unroll 8
  for (auto& row : sums) {
#pragma GCC unroll 4
    for (auto& sum : row) sum = _mm512_setzero_ps();
  }
  const __m512i turn = interleaved_indices(0, kLanes);
  for (std::int64_t i = 0; i < a.head_width; i += 2) {
    __m512bh keys[kChunks];
#pragma GCC unroll 4
    for (int g = 0; g < kChunks; ++g) {
      const __m512i two = _mm512_loadu_si512(a.keys[chunk + g] + i * (kLine / 2));
      keys[g] = pairs(_mm512_permutexvar_epi16(turn, two));
    }
#pragma GCC unroll 8
    for (int row = 0; row < kRows; ++row) {
      const __m512bh query = broadcast_pair(a.queries[row] + i * 2);
#pragma GCC unroll 4
      for (int g = 0; g < kChunks; ++g) {
        sums[row][g] = _mm512_dpbf16_ps(sums[row][g], query, keys[g]);
      }
    }
  }
  const __m512 scale = _mm512_set1_ps(a.scale);
#pragma GCC unroll 8
  for (int row = 0; row < kRows; ++row) {
#pragma GCC unroll 4
    for (int g = 0; g < kChunks; ++g) {
      _mm512_store_ps(a.probabilities + row * PairAttention::kPositions + (chunk + g) * kLanes,
                      _mm512_mul_ps(sums[row][g], scale));
    }
  }
}

template <int kRows>
void score_all(const PairAttention& a) {
  constexpr int kChunks = kRows > 4 ? 2 : 4;  // as many sums as there are registers for
  std::int64_t chunk = 0;
  for (; chunk + kChunks <= a.chunks; chunk += kChunks) score<kRows, kChunks>(a, chunk);
  for (; chunk < a.chunks; ++chunk) score<kRows, 1>(a, chunk);
}

// Probabilities of a key block, rounded: pairs of positions.
struct Probabilities {
  alignas(kLine) std::int32_t pair[PairAttention::kRows][PairAttention::kPositions / 2];

  explicit Probabilities(const PairAttention& a) {
    for (std::int64_t row = 0; row < a.rows; ++row) {
      const float* const from = a.probabilities + row * PairAttention::kPositions;
      for (std::int64_t at = 0; at < PairAttention::kPositions; at += 2 * kLanes) {
        const __m512bh rounded =
            _mm512_cvtne2ps_pbh(_mm512_load_ps(from + at + kLanes), _mm512_load_ps(from + at));
        _mm512_store_si512(pair[row] + at / 2, reinterpret_cast<__m512i>(rounded));
      }
    }
  }
};

// The positions that some row sees, and among them those that all see.
struct Seen {
  std::int64_t begin, all_begin, all_end, end;
};

template <int kRows>
Seen seen_by(const PairAttention& a) {
  Seen seen{a.opening[0], a.opening[0], a.visible[0], a.visible[0]};
  for (int row = 1; row < kRows; ++row) {
    const std::int64_t opening = a.opening[row];
    const std::int64_t visible = a.visible[row];
    seen.begin = opening < seen.begin ? opening : seen.begin;
    seen.all_begin = opening > seen.all_begin ? opening : seen.all_begin;
    seen.all_end = visible < seen.all_end ? visible : seen.all_end;
    seen.end = visible > seen.end ? visible : seen.end;
  }
  return seen;
}

// Adds kLines * 32 elements of values, from byte `at` of a position on.
template <int kRows, int kLines>
void add(const PairAttention& a, const Probabilities& probabilities, const Seen& seen,
         std::int64_t at) {
  __m512 sums[kRows][2 * kLines];
#pragma GCC unroll 8
  for (int row = 0; row < kRows; ++row) {
    const float* const from = a.out + row * a.head_width + at / 2;
#pragma GCC unroll 4
    for (int v = 0; v < 2 * kLines; ++v) {
      sums[row][v] =
          _mm512_mul_ps(_mm512_load_ps(from + v * kLanes), _mm512_set1_ps(a.factors[row]));
    }
  }
  const __m512i low = interleaved_indices(0, 2 * kLanes);
  const __m512i high = interleaved_indices(kLanes, 3 * kLanes);
  const std::int64_t stride = a.head_width * 2;
  for (std::int64_t j = seen.begin / 2 * 2; j < seen.end; j += 2) {
    const std::byte* const from =
        a.values[j / PairAttention::kChunk] + j % PairAttention::kChunk * stride + at;
    __m512bh both[2 * kLines];
    const auto load = [&](bool first, bool second) __attribute__((always_inline)) {
      const __m512i none = _mm512_setzero_si512();
#pragma GCC unroll 2
      for (int line = 0; line < kLines; ++line) {
        const __m512i one = first ? _mm512_loadu_si512(from + line * kLine) : none;
        const __m512i two = second ? _mm512_loadu_si512(from + stride + line * kLine) : none;
        both[2 * line] = pairs(_mm512_permutex2var_epi16(one, low, two));
        both[2 * line + 1] = pairs(_mm512_permutex2var_epi16(one, high, two));
      }
    };
    const auto add_row = [&](int row) __attribute__((always_inline)) {
      const __m512bh probability = broadcast_pair(probabilities.pair[row] + j / 2);
#pragma GCC unroll 4
      for (int v = 0; v < 2 * kLines; ++v) {
        sums[row][v] = _mm512_dpbf16_ps(sums[row][v], probability, both[v]);
      }
    };
    if (j >= seen.all_begin && j + 1 < seen.all_end) {
      load(true, true);
#pragma GCC unroll 8
      for (int row = 0; row < kRows; ++row) add_row(row);
      continue;
    }
    // Rows that see both positions, those that see the first alone, and the second alone.
    const auto add_rows = [&](bool first, bool second) __attribute__((always_inline)) {
      load(first, second);
#pragma GCC unroll 8
      for (int row = 0; row < kRows; ++row) {
        const bool sees_first = j >= a.opening[row] && j < a.visible[row];
        const bool sees_second = j + 1 >= a.opening[row] && j + 1 < a.visible[row];
        if (sees_first == first && sees_second == second) add_row(row);
      }
    };
    if (j + 1 < seen.end) add_rows(true, true);
    add_rows(true, false);
    if (j < seen.all_begin) add_rows(false, true);
  }
#pragma GCC unroll 8
  for (int row = 0; row < kRows; ++row) {
    float* const to = a.out + row * a.head_width + at / 2;
#pragma GCC unroll 4
    for (int v = 0; v < 2 * kLines; ++v) _mm512_store_ps(to + v * kLanes, sums[row][v]);
  }
}

template <int kRows>
void add_all(const PairAttention& a) {
  const Probabilities probabilities(a);
  const Seen seen = seen_by<kRows>(a);
  constexpr int kLines = kRows > 4 ? 1 : 2;
  const std::int64_t bytes = a.head_width * 2;
  std::int64_t at = 0;
  for (; at + kLines * kLine <= bytes; at += kLines * kLine) {
    add<kRows, kLines>(a, probabilities, seen, at);
  }
  for (; at < bytes; at += kLine) add<kRows, 1>(a, probabilities, seen, at);
}

}  // namespace

void score_pairs(const PairAttention& a) {
  switch (a.rows) {
    case 1:
      return score_all<1>(a);
    case 2:
      return score_all<2>(a);
    case 4:
      return score_all<4>(a);
    default:
      return score_all<8>(a);
  }
}

void add_pairs(const PairAttention& a) {
  switch (a.rows) {
    case 1:
      return add_all<1>(a);
    case 2:
      return add_all<2>(a);
    case 4:
      return add_all<4>(a);
    default:
      return add_all<8>(a);
  }
}

}  // namespace zero::cpu

#else

namespace zero::cpu {

void score_pairs(const PairAttention& /*attention*/) {}
void add_pairs(const PairAttention& /*attention*/) {}

}  // namespace zero::cpu

#endif
