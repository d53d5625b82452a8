// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>

namespace zero::cpu {

/// One key block of positions for a tile of query rows, in bf16 by pairs: of a head's elements for
/// scores, of positions for values. For processors with Bf16Instructions::pairs
/// (ops/cpu/products.h). A row's bits depend on no other row.
struct PairAttention {
  static constexpr std::int64_t kRows = 8;        ///< at most; 1, 2, 4 or 8
  static constexpr std::int64_t kPositions = 64;  ///< of a key block
  static constexpr std::int64_t kChunk = 16;      ///< positions whose keys and values lie together
  static constexpr std::int64_t kWidths = 32;     ///< head widths are multiples of this

  std::int64_t rows = 0;
  std::int64_t head_width = 0;
  float scale = 0;                                    ///< of scores
  const std::byte* queries[kRows] = {};               ///< (head_width) bf16
  const std::byte* keys[kPositions / kChunk] = {};    ///< of a chunk: (head_width, kChunk) bf16
  const std::byte* values[kPositions / kChunk] = {};  ///< of a chunk: (kChunk, head_width) bf16
  std::int64_t chunks = 0;                            ///< that there are; others are not read
  std::int64_t opening[kRows] = {};                   ///< positions before those that a row sees
  std::int64_t visible[kRows] = {};                   ///< and behind them; both 0: it sees none
  float factors[kRows] = {};                          ///< of what the rows have summed before
  float* probabilities = nullptr;                     ///< (rows, kPositions), aligned to 64 bytes
  float* out = nullptr;                               ///< (rows, head_width), aligned to 64 bytes
};

/// Writes scale * queries keys to `probabilities`, of the chunks that there are. The products
/// before the scale must fit fp32.
void score_pairs(const PairAttention& a);
/// out = factors * out + probabilities values. Probabilities are rounded to bf16; those of
/// positions that a row does not see are 0, or anything if it sees none. No row reads a value that
/// it does not see, which may be no number.
void add_pairs(const PairAttention& a);

}  // namespace zero::cpu
