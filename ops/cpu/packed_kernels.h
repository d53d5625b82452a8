// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>

#include "base/dtype.h"
#include "ops/tile.h"

namespace zero::cpu::packed {

// Kernels pack tiles of operands in the layout of their instructions. A result's tile is rows of
// fp32.

/// The role of 32 x 32 elements stored as (row, column).
enum class Form : std::uint8_t {
  left,              ///< of the left operand: row, depth
  left_transposed,   ///< of the left operand: depth, row
  right,             ///< of the right operand: depth, column
  right_transposed,  ///< of the right operand: column, depth
};

/// Tiles of an operand side by side in memory; missing elements of 32 x 32 count as zero.
struct Patch {
  const void* data = nullptr;
  DType dtype = DType::bf16;
  std::int64_t stride = 0;  ///< elements between rows
  std::int64_t rows = kTile;
  std::int64_t columns = kTile;  ///< of all tiles
};

/// A row panel: tiles of the left operand along the depth, packed or in place. More panels may
/// follow below.
struct RowPanel {
  const std::byte* upper = nullptr;  ///< rows 0 to 15 of the first tile
  const std::byte* lower = nullptr;  ///< rows 16 to 31
  std::int64_t row_bytes = 0;        ///< between rows; Kernels::left_bytes if packed
  std::int64_t tile_bytes = 0;       ///< between tiles
  std::int64_t panel_bytes = 0;      ///< to the panel of the next 32 rows
};

struct PanelProduct {
  enum class Start : std::uint8_t { zero, result };
  /// The place of finished sums in a dense fp32 matrix, for kernels with `finishes` alone.
  struct Finish {
    float* data = nullptr;        ///< of the first tile; null: sums are written to `result`
    std::int64_t stride = 0;      ///< elements between rows
    const float* bias = nullptr;  ///< added; one per column, or null
    bool add = false;             ///< adds the sums to the matrix
  };
  RowPanel left;
  const std::byte* right = nullptr;  ///< packed tiles, one after another in depth
  std::int64_t right_across = 0;     ///< bytes between neighbouring columns of tiles
  std::int64_t depth_tiles = 0;      ///< tiles of depth
  std::int64_t tiles = 1;            ///< columns of tiles; at most Kernels::tiles
  std::int64_t panels = 1;    ///< panels of 32 rows, one below another; at most Kernels::panels
  std::int64_t rows = kTile;  ///< rows of the last panel that matter; others may stay
  float* result = nullptr;    ///< tiles of 32 x 32, aligned to 64 bytes
  std::int64_t result_across = 0;      ///< elements between neighbouring tiles
  std::int64_t result_down = 0;        ///< elements to the tiles of the next panel
  std::int64_t result_stride = kTile;  ///< elements between rows of a tile
  Start start = Start::zero;           ///< the initial value of the sums
  Finish finish;
};

/// The destination of a dense tile of a result.
struct Destination {
  enum class Mode : std::uint8_t { overwrite, add };
  void* data = nullptr;
  DType dtype = DType::fp32;  ///< bf16, fp16: rounded to nearest
  std::int64_t stride = 0;    ///< elements between rows
  std::int64_t rows = kTile;
  std::int64_t columns = kTile;
  const void* bias = nullptr;  ///< one per column, or null
  DType bias_dtype = DType::fp32;
  Mode mode = Mode::overwrite;
};

/// One implementation of products of packed tiles. Every element of a result is one fp32 sum in
/// the order of depth: of elements, each by a fused multiplication and addition where the vectors
/// have one (floats); of pairs of elements (bf16); by AMX of sums over 32 elements, each the sum of
/// its even and of its odd ones. bf16 instructions take subnormals for zeros.
struct Kernels {
  std::int64_t tile_bytes;  ///< of a packed tile
  std::int64_t left_bytes;  ///< between rows of a left tile; 0: not in rows
  std::int64_t tiles;       ///< the most per multiply(), side by side
  std::int64_t panels;      ///< the most per multiply(), one below another
  bool finishes = false;    ///< multiply() heeds PanelProduct::finish
  DType in_place;           ///< left panels of this type are read unpacked if rows are whole lines
  std::int64_t depth = 0;   ///< elements at a time, at most, if panels share columns
  void (*begin)();          ///< begin() and end() enclose a thread's multiply() calls
  void (*end)();
  /// Packs tiles, aligned to 64 bytes, the second `step` bytes after the first.
  void (*pack)(Form form, const Patch& patch, std::byte* to, std::int64_t step);
  void (*multiply)(const PanelProduct& product);
  void (*store)(const float* result, const Destination& to);
  /// Runs `turns` rounds on operands in registers, returns their FLOP; null: ordinary arithmetic.
  double (*in_registers)(std::int64_t turns);
};

/// packed_bf16.cpp: bf16 by AVX-512, a pair in depth at a time, and by AMX; only for processors
/// with these instructions; null if not in this build.
const Kernels* pair_kernels();
const Kernels* tile_kernels();
/// Whether pair_kernels() are faster than float_kernels(). A processor with AMX takes two cycles
/// for a vector of pairs, and half as long for the same number of fp32 multiplications.
bool pairs_are_fast();
/// fp32 by the vectors of any processor (packed_floats.cpp), element after element of the depth;
/// bf16 and fp16 operands are widened as they are packed.
const Kernels& float_kernels();

}  // namespace zero::cpu::packed
