// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0

// Compiled for processors with AVX-512 and AMX, whatever the target of the rest of the build: only
// intrinsics here, no inline function that the linker could share with another file.
#include <cpuid.h>
#include <immintrin.h>

#include "base/half.h"
#include "ops/cpu/bf16_pairs.h"
#include "ops/cpu/packed_kernels.h"

namespace zero::cpu::packed {
namespace {

/// A packed tile of bf16 is two of AMX, of 16 x 64 bytes each. The left operand's are rows 0 to 15
/// and 16 to 31; the right operand's are columns 0 to 15 and 16 to 31, in which neighbours in depth
/// are stored in pairs.
constexpr int kAmxRows = 16;
constexpr std::int64_t kAmxBytes = 1024;
constexpr std::int64_t kAmxStride = 64;
constexpr std::int64_t kTileBytes = kTile * kTile * 2;

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

// Kernels::pack.
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

// Compilers do not track the memory that tile instructions read.
void compiler_barrier() { __asm__ volatile("" ::: "memory"); }

struct alignas(64) TileConfiguration {
  std::uint8_t palette = 1;
  std::uint8_t start_row = 0;
  std::uint8_t reserved[14] = {};
  std::uint16_t row_bytes[16] = {64, 64, 64, 64, 64, 64, 64, 64};
  std::uint8_t rows[16] = {16, 16, 16, 16, 16, 16, 16, 16};
};
const TileConfiguration kConfiguration;

__m512 widen(__m256i halves) {
  return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(halves), 16));
}

// The first and second half of a row of a destination.
struct Halves {
  __m512 first;
  __m512 second;
};

Halves load_row(__mmask32 mask, const bfloat16* from) {
  const __m512i row = _mm512_maskz_loadu_epi16(mask, from);
  return {widen(_mm512_castsi512_si256(row)), widen(_mm512_extracti64x4_epi64(row, 1))};
}
Halves load_row(__mmask32 mask, const float* from) {
  const auto second = static_cast<__mmask16>(mask >> kAmxRows);
  return {_mm512_maskz_loadu_ps(static_cast<__mmask16>(mask), from),
          _mm512_maskz_loadu_ps(second, from + kAmxRows)};
}
Halves add(Halves a, Halves b) {
  return {_mm512_add_ps(a.first, b.first), _mm512_add_ps(a.second, b.second)};
}
void store_row(__mmask32 mask, Halves row, float* to) {
  _mm512_mask_storeu_ps(to, static_cast<__mmask16>(mask), row.first);
  _mm512_mask_storeu_ps(to + kAmxRows, static_cast<__mmask16>(mask >> kAmxRows), row.second);
}
void store_row(__mmask32 mask, Halves row, bfloat16* to) {
  const __m512bh rounded = _mm512_cvtne2ps_pbh(row.second, row.first);
  _mm512_mask_storeu_epi16(to, mask, reinterpret_cast<__m512i>(rounded));
}

template <typename T>
void store_tiles(const float* result, const Destination& to) {
  const __mmask32 mask = first_lanes(to.columns);
  Halves bias{_mm512_setzero_ps(), _mm512_setzero_ps()};
  if (to.bias != nullptr) bias = load_row(mask, static_cast<const bfloat16*>(to.bias));
  for (std::int64_t row = 0; row < to.rows; ++row) {
    const float* from = result + row * kTile;
    T* place = static_cast<T*>(to.data) + row * to.stride;
    Halves value = add({_mm512_load_ps(from), _mm512_load_ps(from + kAmxRows)}, bias);
    if (to.mode == Destination::Mode::add) value = add(value, load_row(mask, place));
    store_row(mask, value, place);
  }
}

void multiply_tiles(const PanelProduct& p) {
  float* const upper_result = p.result;
  float* const lower_result = p.result + kAmxRows * p.result_stride;
  const std::int64_t result_bytes = p.result_stride * 4;
  compiler_barrier();
  if (p.start == PanelProduct::Start::zero) {
    _tile_zero(0);
    _tile_zero(1);
    _tile_zero(2);
    _tile_zero(3);
  } else {
    _tile_loadd(0, upper_result, result_bytes);
    _tile_loadd(1, upper_result + kAmxRows, result_bytes);
    _tile_loadd(2, lower_result, result_bytes);
    _tile_loadd(3, lower_result + kAmxRows, result_bytes);
  }
  const std::byte* upper = p.left.upper;
  const std::byte* lower = p.left.lower;
  const std::byte* right = p.right;
  for (std::int64_t step = 0; step < p.depth_tiles; ++step) {
    _tile_loadd(6, right, kAmxStride);
    _tile_loadd(4, upper, p.left.row_bytes);
    _tile_dpbf16ps(0, 4, 6);
    _tile_loadd(7, right + kAmxBytes, kAmxStride);
    _tile_dpbf16ps(1, 4, 7);
    _tile_loadd(5, lower, p.left.row_bytes);
    _tile_dpbf16ps(2, 5, 6);
    _tile_dpbf16ps(3, 5, 7);
    upper += p.left.tile_bytes;
    lower += p.left.tile_bytes;
    right += kTileBytes;
  }
  _tile_stored(0, upper_result, result_bytes);
  _tile_stored(1, upper_result + kAmxRows, result_bytes);
  _tile_stored(2, lower_result, result_bytes);
  _tile_stored(3, lower_result + kAmxRows, result_bytes);
  compiler_barrier();
}

constexpr int kRegisterRows = 8;  // whose sums fit the registers

// kRows rows from `left` on; `result` belongs to the first.
template <int kRows>
void multiply_rows(const PanelProduct& p, const std::byte* left, float* result) {
  Halves sums[kRows];
  const bool zero = p.start == PanelProduct::Start::zero;
#pragma GCC unroll 8
  for (int i = 0; i < kRows; ++i) {
    const float* from = result + i * p.result_stride;
    sums[i].first = zero ? _mm512_setzero_ps() : _mm512_load_ps(from);
    sums[i].second = zero ? _mm512_setzero_ps() : _mm512_load_ps(from + kAmxRows);
  }
  const std::byte* right = p.right;
  for (std::int64_t step = 0; step < p.depth_tiles;
       ++step, left += p.left.tile_bytes, right += kTileBytes) {
    for (std::int64_t pair = 0; pair < kAmxRows; ++pair) {
      const std::byte* at = right + pair * kAmxStride;
      const auto first = reinterpret_cast<__m512bh>(_mm512_load_si512(at));
      const auto second = reinterpret_cast<__m512bh>(_mm512_load_si512(at + kAmxBytes));
#pragma GCC unroll 8
      for (int i = 0; i < kRows; ++i) {
        const __m512bh value = broadcast_pair(left + i * p.left.row_bytes + pair * 4);
        sums[i].first = _mm512_dpbf16_ps(sums[i].first, value, first);
        sums[i].second = _mm512_dpbf16_ps(sums[i].second, value, second);
      }
    }
  }
#pragma GCC unroll 8
  for (int i = 0; i < kRows; ++i) {
    _mm512_store_ps(result + i * p.result_stride, sums[i].first);
    _mm512_store_ps(result + i * p.result_stride + kAmxRows, sums[i].second);
  }
}

// Rows from `row` on, kRows at a time, the rest half as many at a time.
template <int kRows>
void multiply_groups(const PanelProduct& p, std::int64_t row) {
  for (; row + kRows <= p.rows; row += kRows) {
    const bool upper = row < kAmxRows;
    const std::byte* left = upper ? p.left.upper : p.left.lower - kAmxRows * p.left.row_bytes;
    multiply_rows<kRows>(p, left + row * p.left.row_bytes, p.result + row * p.result_stride);
  }
  if constexpr (kRows > 1) multiply_groups<kRows / 2>(p, row);
}
void multiply_pairs(const PanelProduct& p) { multiply_groups<kRegisterRows>(p, 0); }

void configure_tiles() { _tile_loadconfig(&kConfiguration); }
void release_tiles() { _tile_release(); }
void nothing() {}

void store(const float* result, const Destination& to) {
  if (to.dtype == DType::bf16) {
    store_tiles<bfloat16>(result, to);
  } else {
    store_tiles<float>(result, to);
  }
}

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

// Four sums of 16 x 16, as in products, from tiles of 16 x 32 and 32 x 16.
double tiles_in_registers(std::int64_t turns) {
  constexpr double kFlop = 2 * 16 * 16 * 32;  // per instruction
  _tile_zero(0);
  _tile_zero(1);
  _tile_zero(2);
  _tile_zero(3);
  _tile_zero(4);
  _tile_zero(5);
  _tile_zero(6);
  _tile_zero(7);
  for (std::int64_t turn = 0; turn < turns; ++turn) {
    _tile_dpbf16ps(0, 4, 6);
    _tile_dpbf16ps(1, 4, 7);
    _tile_dpbf16ps(2, 5, 6);
    _tile_dpbf16ps(3, 5, 7);
  }
  return kFlop * 4 * static_cast<double>(turns);
}

constexpr Kernels kPairs{.tile_bytes = kTileBytes,
                         .left_bytes = kAmxStride,
                         .tiles = 1,
                         .panels = 1,
                         .in_place = DType::bf16,
                         .begin = nothing,
                         .end = nothing,
                         .pack = pack_pairs,
                         .multiply = multiply_pairs,
                         .store = store,
                         .in_registers = pairs_in_registers};
constexpr Kernels kTiles{.tile_bytes = kTileBytes,
                         .left_bytes = kAmxStride,
                         .tiles = 1,
                         .panels = 1,
                         .in_place = DType::bf16,
                         .begin = configure_tiles,
                         .end = release_tiles,
                         .pack = pack_pairs,
                         .multiply = multiply_tiles,
                         .store = store,
                         .in_registers = tiles_in_registers};

}  // namespace

const Kernels* pair_kernels() { return &kPairs; }
const Kernels* tile_kernels() { return &kTiles; }

// AVX512-FP16 identifies Intel's processors with AMX even if the system or a user disables AMX. On
// one core of the first of them: 72 GFLOP/s by pairs of bf16, 144 in fp32.
bool pairs_are_fast() {
  constexpr unsigned kFeatures = 7;
  constexpr unsigned kFp16Vectors = 1U << 23;
  unsigned a = 0;
  unsigned b = 0;
  unsigned c = 0;
  unsigned d = 0;
  const bool known = __get_cpuid_count(kFeatures, 0, &a, &b, &c, &d) != 0;
  return !(known && __builtin_cpu_is("intel") != 0 && (d & kFp16Vectors) != 0);
}

}  // namespace zero::cpu::packed
