// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0

// Compiled as packed_kernels.cpp is: only intrinsics here, no inline function that the linker could
// share with another file.
#include "ops/cpu/pair_tiles.h"

#include <immintrin.h>

#include "base/half.h"
#include "ops/cpu/bf16_pairs.h"

namespace zero::cpu::packed {
namespace {

struct Rows {
  __m512i row[kAmxRows];
};

// Pairs of elements (i, j) become pairs (j, i).
void transpose(Rows& r) {
  __m512i a[kAmxRows];
  __m512i b[kAmxRows];
#pragma GCC unroll 16
  for (int i = 0; i < kAmxRows; i += 2) {
    a[i] = _mm512_unpacklo_epi32(r.row[i], r.row[i + 1]);
    a[i + 1] = _mm512_unpackhi_epi32(r.row[i], r.row[i + 1]);
  }
#pragma GCC unroll 16
  for (int i = 0; i < kAmxRows; i += 4) {
    b[i] = _mm512_unpacklo_epi64(a[i], a[i + 2]);
    b[i + 1] = _mm512_unpackhi_epi64(a[i], a[i + 2]);
    b[i + 2] = _mm512_unpacklo_epi64(a[i + 1], a[i + 3]);
    b[i + 3] = _mm512_unpackhi_epi64(a[i + 1], a[i + 3]);
  }
#pragma GCC unroll 16
  for (int i = 0; i < 4; ++i) {
    a[i] = _mm512_shuffle_i32x4(b[i], b[4 + i], 0x88);
    a[4 + i] = _mm512_shuffle_i32x4(b[i], b[4 + i], 0xdd);
    a[8 + i] = _mm512_shuffle_i32x4(b[8 + i], b[12 + i], 0x88);
    a[12 + i] = _mm512_shuffle_i32x4(b[8 + i], b[12 + i], 0xdd);
  }
#pragma GCC unroll 16
  for (int i = 0; i < 8; ++i) {
    r.row[i] = _mm512_shuffle_i32x4(a[i], a[8 + i], 0x88);
    r.row[8 + i] = _mm512_shuffle_i32x4(a[i], a[8 + i], 0xdd);
  }
}

struct Pair {
  __m512i first;
  __m512i second;
};
// Two rows of 32 elements become 32 pairs: 16 for the first tile, 16 for the second.
Pair interleave(__m512i upper, __m512i lower) {
  const __m512i first = _mm512_setr_epi64(0, 1, 8, 9, 2, 3, 10, 11);
  const __m512i second = _mm512_setr_epi64(4, 5, 12, 13, 6, 7, 14, 15);
  const __m512i low = _mm512_unpacklo_epi16(upper, lower);
  const __m512i high = _mm512_unpackhi_epi16(upper, lower);
  return {_mm512_permutex2var_epi64(low, first, high),
          _mm512_permutex2var_epi64(low, second, high)};
}

void write_half(const Rows& rows, std::byte* to) {
#pragma GCC unroll 16
  for (int i = 0; i < kAmxRows; ++i) _mm512_store_si512(to + i * kAmxStride, rows.row[i]);
}

const bfloat16* elements(const Patch& patch) { return static_cast<const bfloat16*>(patch.data); }

// Rows of a whole patch, and of one that lacks some.
struct Whole {
  const Patch& patch;
  __m512i row(std::int64_t i) const {
    return _mm512_loadu_si512(elements(patch) + i * patch.stride);
  }
};
struct Cropped {
  const Patch& patch;
  __mmask32 mask = first_lanes(patch.columns);
  __m512i row(std::int64_t i) const {
    return i < patch.rows ? _mm512_maskz_loadu_epi16(mask, elements(patch) + i * patch.stride)
                          : _mm512_setzero_si512();
  }
};

template <typename Source>
void pack_rows(const Source& from, std::byte* to) {
  for (int i = 0; i < 2 * kAmxRows; ++i) _mm512_store_si512(to + i * kAmxStride, from.row(i));
}

template <typename Source>
void pack_interleaved(const Source& from, std::byte* to) {
  for (int i = 0; i < kAmxRows; ++i) {
    const Pair pair = interleave(from.row(2 * i), from.row(2 * i + 1));
    _mm512_store_si512(to + i * kAmxStride, pair.first);
    _mm512_store_si512(to + kAmxBytes + i * kAmxStride, pair.second);
  }
}

template <typename Source>
void pack_transposed(const Source& from, std::byte* to) {
  for (int half = 0; half < 2; ++half) {
    Rows rows;
#pragma GCC unroll 16
    for (int i = 0; i < kAmxRows; ++i) rows.row[i] = from.row(half * kAmxRows + i);
    transpose(rows);
    write_half(rows, to + half * kAmxBytes);
  }
}

void pack_packed_transposed(std::byte* to) {
  for (int half = 0; half < 2; ++half, to += kAmxBytes) {
    Rows rows;
#pragma GCC unroll 16
    for (int i = 0; i < kAmxRows; ++i) rows.row[i] = _mm512_load_si512(to + i * kAmxStride);
    transpose(rows);
    write_half(rows, to);
  }
}

template <typename Source>
void pack_from(Form form, const Source& from, std::byte* to) {
  switch (form) {
    case Form::left:
      return pack_rows(from, to);
    case Form::right:
      return pack_interleaved(from, to);
    case Form::right_transposed:
      return pack_transposed(from, to);
    case Form::left_transposed:
      pack_interleaved(from, to);
      pack_packed_transposed(to);
  }
}

}  // namespace

void pack_pairs(Form form, const Patch& patch, std::byte* to, std::int64_t step) {
  Patch tile = patch;
  for (; tile.columns > 0; tile.columns -= kTile, to += step) {
    if (tile.rows >= kTile && tile.columns >= kTile) {
      pack_from(form, Whole{tile}, to);
    } else {
      pack_from(form, Cropped{tile}, to);
    }
    tile.data = elements(tile) + kTile;
  }
}

}  // namespace zero::cpu::packed
