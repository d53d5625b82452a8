// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0

// Compiled for processors with AVX-512 and bf16, whatever the target of the rest of the build: only
// intrinsics here, no inline function that the linker could share with another file.
#include "model/cpu/packed_pairs.h"

#include <immintrin.h>

namespace zero::cpu::packed {
namespace {

// A packed square is two halves of 16 pairs in depth, 16 columns each.
constexpr int kPairs = 16;
constexpr std::int64_t kHalfBytes = 1024;
constexpr std::int64_t kPairBytes = 64;
constexpr std::int64_t kSquareBytes = kBlock * kBlock * 2;
constexpr int kHalfRows = 16;     // of the left operand: upper or lower
constexpr int kRegisterRows = 8;  // whose sums fit the registers
// Fewer rows take squares side by side: an addition to a sum waits long for the one before it.
constexpr int kLeastSums = 2;
// Columns of squares lie one after another, which hardware fetches too late.
constexpr std::int64_t kAhead = 8192;

// A pair of bf16, of any alignment.
using Unaligned [[gnu::may_alias, gnu::aligned(2)]] = std::int32_t;

__m512bh broadcast_pair(const std::byte* from) {
  return reinterpret_cast<__m512bh>(_mm512_set1_epi32(*reinterpret_cast<const Unaligned*>(from)));
}
__m512bh load_pairs(const std::byte* from) {
  return reinterpret_cast<__m512bh>(_mm512_load_si512(from));
}

// kRows rows from `left` on times kSquares squares side by side; `right` and `result` belong to the
// first.
template <int kRows, int kSquares>
void multiply_rows(const StripProduct& p, const std::byte* left, const std::byte* right,
                   float* result) {
  __m512 sums[kSquares][kRows][2];
  const bool zero = p.start == StripProduct::Start::zero;
  const auto for_each_sum = [&](auto body) __attribute__((always_inline)) {
#pragma GCC unroll 4
    for (int square = 0; square < kSquares; ++square) {
#pragma GCC unroll 8
      for (int row = 0; row < kRows; ++row) {
        float* const at = result + square * p.result_across + row * p.result_stride;
        body(sums[square][row][0], at);
        body(sums[square][row][1], at + kBlock / 2);
      }
    }
  };
  for_each_sum([&](__m512 & sum, const float* from) __attribute__((always_inline)) {
    sum = zero ? _mm512_setzero_ps() : _mm512_load_ps(from);
  });
  for (std::int64_t step = 0; step < p.steps;
       ++step, left += p.left.step_bytes, right += kSquareBytes) {
    for (std::int64_t pair = 0; pair < kPairs; ++pair) {
#pragma GCC unroll 4
      for (int square = 0; square < kSquares; ++square) {
        const std::byte* at = right + square * p.right_across + pair * kPairBytes;
        if constexpr (kRows < kRegisterRows) {
          const std::byte* ahead = right + square * p.right_across + pair * 2 * kPairBytes + kAhead;
          _mm_prefetch(ahead, _MM_HINT_T0);
          _mm_prefetch(ahead + kPairBytes, _MM_HINT_T0);
        }
        const __m512bh first = load_pairs(at);
        const __m512bh second = load_pairs(at + kHalfBytes);
#pragma GCC unroll 8
        for (int row = 0; row < kRows; ++row) {
          const __m512bh value = broadcast_pair(left + row * p.left.row_bytes + pair * 4);
          sums[square][row][0] = _mm512_dpbf16_ps(sums[square][row][0], value, first);
          sums[square][row][1] = _mm512_dpbf16_ps(sums[square][row][1], value, second);
        }
      }
    }
  }
  for_each_sum([](__m512 & sum, float* to)
                   __attribute__((always_inline)) { _mm512_store_ps(to, sum); });
}

// Squares from `square` on, kSquares at a time, the rest singly.
template <int kRows, int kSquares>
void multiply_squares(const StripProduct& p, const std::byte* left, float* result, int square) {
  for (; square + kSquares <= p.squares; square += kSquares) {
    multiply_rows<kRows, kSquares>(p, left, p.right + square * p.right_across,
                                   result + square * p.result_across);
  }
  if constexpr (kSquares > 1) multiply_squares<kRows, 1>(p, left, result, square);
}

// Rows from `row` on, kRows at a time, the rest half as many at a time.
template <int kRows>
void multiply_groups(const StripProduct& p, std::int64_t row) {
  constexpr int kSquares = kRows < kLeastSums ? kLeastSums / kRows : 1;
  for (; row + kRows <= p.rows; row += kRows) {
    const bool upper = row < kHalfRows;
    const std::byte* left = upper ? p.left.upper : p.left.lower - kHalfRows * p.left.row_bytes;
    multiply_squares<kRows, kSquares>(p, left + row * p.left.row_bytes,
                                      p.result + row * p.result_stride, 0);
  }
  if constexpr (kRows > 1) multiply_groups<kRows / 2>(p, row);
}

}  // namespace

void multiply_pairs(const StripProduct& p) { multiply_groups<kRegisterRows>(p, 0); }

// Enough independent sums to hide the latency of one.
double pairs_in_registers(std::int64_t turns) {
  constexpr int kSums = 12;
  constexpr double kFlop = 2 * 32;  // per instruction
  const auto ones = reinterpret_cast<__m512bh>(_mm512_set1_epi16(0x3f80));
  __m512 sums[kSums] = {};
  for (std::int64_t turn = 0; turn < turns; ++turn) {
#pragma GCC unroll 12
    for (auto& sum : sums) {
      sum = _mm512_dpbf16_ps(sum, ones, ones);
      __asm__ volatile("" : "+v"(sum));
    }
  }
  return kFlop * kSums * static_cast<double>(turns);
}

}  // namespace zero::cpu::packed
