// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>

#include "base/dtype.h"
#include "ops/cpu/packed_tiles.h"

namespace zero::cpu::packed {

/// One implementation of products of packed tiles. Every element of a result is one fp32 sum in
/// the order of depth.
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

/// bf16 by AVX-512, a pair in depth at a time, and by AMX; only for processors with these
/// instructions; null if not in this build.
const Kernels* pair_kernels();
const Kernels* tile_kernels();
/// Whether pair_kernels() are faster than float_kernels(). A processor with AMX takes two cycles
/// for a vector of pairs, and half as long for the same number of fp32 multiplications.
bool pairs_are_fast();
/// fp32 by the vectors of any processor, one multiplication and addition at a time; bf16 and fp16
/// operands are widened as they are packed.
const Kernels& float_kernels();

}  // namespace zero::cpu::packed
