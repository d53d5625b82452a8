// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>

namespace zero::cpu {

/// Rows times 32 columns of a stored weight, by pairs of bf16 in depth: for processors with
/// AVX512_BF16 (ops/cpu/packed_kernels.h: pair_kernels()). An element of the result is the sum of
/// its groups in the order of depth; a group is one fp32 sum of rows times levels in the order of
/// depth, then times its scale. Its bits depend neither on the number of rows nor on how levels are
/// stored.
struct Bf16DotProduct {
  /// Tiles of 32 x 32 levels.
  enum class Levels : std::uint8_t {
    bf16,   ///< as pair_kernels() read them: 16 columns at all depths, then 16 more
    int8,   ///< codes of -127 to 127: for each pair of depths, 32 columns of pairs
    bits4,  ///< for each 4 depths, 32 lanes of 16 bits: lane 2 * (column % 16) + depth % 2 holds,
            ///< from the low half byte up, the first pair of depths at the column and at the column
            ///< + 16, then the second pair likewise
    bits4_zeros,  ///< likewise, with a zero point for each column and group
  };
  enum class Scales : std::uint8_t { none, fp32, fp16, codes };

  static constexpr std::int64_t kGroupsOfRange = 8;

  const std::byte* x = nullptr;  ///< rows of `depth_tiles` * 32 bf16
  std::int64_t row_bytes = 0;    ///< between rows
  std::int64_t rows = 0;
  const std::byte* tiles = nullptr;
  Levels levels = Levels::bf16;
  std::int64_t depth_tiles = 0;  ///< tiles, one after another in depth
  /// bits4: 16 bf16; bits4_zeros: 32, of codes less zero points, from -16 on.
  const void* level_of_code = nullptr;
  const std::uint8_t* zeros = nullptr;  ///< bits4_zeros: for each group 32, of 0 to 15
  Scales scale = Scales::none;
  const void* scales = nullptr;   ///< for each group 32
  const float* ranges = nullptr;  ///< of codes: for each 8 groups the least scale and a step
  std::int64_t group_tiles = 0;   ///< tiles of a group; the last may have fewer. 0: one group
  float* sums = nullptr;          ///< (rows, 32), aligned to 64 bytes
  /// As many tiles that may be multiplied next: more than 8 rows fetch them meanwhile. May be
  /// null.
  const std::byte* next = nullptr;
};

/// Where the code of an element lies in a tile of codes, for any processor.
struct PairPlace {
  std::int64_t byte = 0;
  bool high = false;  ///< of 4 bits: in the byte's high half
};
constexpr PairPlace pair_place(Bf16DotProduct::Levels levels, std::int64_t depth,
                               std::int64_t column) {
  const std::int64_t lane = column % 16 * 2 + depth % 2;
  if (levels == Bf16DotProduct::Levels::int8)
    return {depth / 2 * 64 + column / 16 * 32 + lane, false};
  return {depth / 4 * 64 + lane * 2 + depth / 2 % 2, column >= 16};
}

/// These only for processors with Bf16Instructions::pairs (ops/cpu/products.h), in a build for
/// them.
void multiply_bf16(const Bf16DotProduct& product);
/// The levels of all tiles of codes as Levels::bf16, less zero points: depth_tiles * 2048 bytes,
/// aligned to 64. Reads nothing of rows and sums.
void look_up_pairs(const Bf16DotProduct& codes, std::byte* to);
/// Likewise, times their scales and rounded to bf16: what other kernels multiply.
void widen_pairs(const Bf16DotProduct& codes, std::byte* to);

}  // namespace zero::cpu
