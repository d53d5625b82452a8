// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#include "ops/cpu/packed_operand.h"

namespace zero::cpu::packed {

Source left_source(const ProductShape& s) {
  const bool plain = s.a == MatrixPlacement::plain;
  const std::int64_t dense = plain ? s.k : s.m;
  return {plain ? Source::Along::depth : Source::Along::lanes,
          plain ? Form::left : Form::left_transposed, s.in, s.lda == 0 ? dense : s.lda};
}

Source right_source(const ProductShape& s) {
  const bool plain = s.b == MatrixPlacement::plain;
  const std::int64_t dense = plain ? s.n : s.k;
  return {plain ? Source::Along::lanes : Source::Along::depth,
          plain ? Form::right : Form::right_transposed, s.in, s.ldb == 0 ? dense : s.ldb};
}

// Reads whole rows of memory: on cache misses, reading line by line would be three times slower.
void fill(const Kernels& kernels, const Source& source, const void* data, Range lanes, Range depth,
          std::byte* to) {
  const bool along_depth = source.along == Source::Along::depth;
  const Range& outer = along_depth ? lanes : depth;
  const Range& inner = along_depth ? depth : lanes;
  const std::int64_t depth_tiles = count_tiles(depth.count);
  const std::int64_t down = (along_depth ? depth_tiles : 1) * kernels.tile_bytes;
  const std::int64_t across = (along_depth ? 1 : depth_tiles) * kernels.tile_bytes;
  for (std::int64_t y = 0; y < count_tiles(outer.count); ++y) {
    const Range rows = outer.tile(y);
    const std::int64_t first = rows.begin * source.stride + inner.begin;
    kernels.pack(source.form,
                 {static_cast<const std::byte*>(data) + first * size_of(source.dtype), source.dtype,
                  source.stride, rows.count, inner.count},
                 to + y * down, across);
  }
}

}  // namespace zero::cpu::packed
