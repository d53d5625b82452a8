// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>

#include "ops/cpu/stored_tiles.h"

namespace zero::cpu {

/// A weight times a few rows.
struct SkinnyProduct {
  static constexpr std::int64_t kMost = 16;  ///< rows

  const float* x = nullptr;  ///< (rows, depth_tiles * 32)
  std::int64_t rows = 0;
  StoredTiles weight;

  /// More rows than this look up the levels of 4-bit codes once for all, a column of tiles at a
  /// time.
  static constexpr std::int64_t kLookUpEach = 2;
  /// Bytes of scratch of one thread.
  static std::int64_t scratch_bytes(const StoredTiles& weight, std::int64_t rows) {
    const bool looks_up = has_four_bits(weight.format()) && rows > kLookUpEach;
    return looks_up ? weight.depth_tiles() * kTileElements * 2 : 0;
  }
};

/// Whether the processor's vectors are of a length that multiply_skinny() knows.
bool has_gemv();
/// Computes columns of tiles [begin, end) of a weight whose products are in fp32, widening
/// elements in registers, to `sums`, (end - begin, rows, 32): every element is one fp32 sum in the
/// order of depth, with the bits of a product by float_kernels() with the widened weight.
/// `scratch`: of this thread, aligned to 64 bytes.
void multiply_skinny(const SkinnyProduct& product, std::int64_t begin, std::int64_t end,
                     float* sums, std::byte* scratch);

/// Columns of tiles [begin, end) of a coded weight as float_kernels() read them, to memory
/// aligned to 64 bytes; if has_gemv().
void widen_codes(const StoredTiles& weight, std::int64_t begin, std::int64_t end, float* to);

}  // namespace zero::cpu
