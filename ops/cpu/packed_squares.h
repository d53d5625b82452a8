// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>

#include "base/dtype.h"

namespace zero::cpu::packed {

/// Operands of a product are cut into squares of kBlock x kBlock elements, which kernels pack in
/// the layout of their instructions; a result's square is rows of fp32.
inline constexpr std::int64_t kBlock = 32;
inline constexpr std::int64_t kResultFloats = kBlock * kBlock;

/// The role of 32 x 32 elements stored as (row, column).
enum class Form : std::uint8_t {
  left,              ///< of the left operand: row, depth
  left_transposed,   ///< of the left operand: depth, row
  right,             ///< of the right operand: depth, column
  right_transposed,  ///< of the right operand: column, depth
};

/// Squares of an operand side by side in memory; missing elements of 32 x 32 count as zero.
struct Patch {
  const void* data = nullptr;
  DType dtype = DType::bf16;
  std::int64_t stride = 0;  ///< elements between rows
  std::int64_t rows = kBlock;
  std::int64_t columns = kBlock;  ///< of all squares
};

/// A strip: squares of the left operand along the depth, packed or in place. More strips may follow
/// below.
struct LeftStrip {
  const std::byte* upper = nullptr;  ///< rows 0 to 15 of the first square
  const std::byte* lower = nullptr;  ///< rows 16 to 31
  std::int64_t row_bytes = 0;        ///< between rows; Kernels::left_bytes if packed
  std::int64_t step_bytes = 0;       ///< between squares
  std::int64_t strip_bytes = 0;      ///< to the strip of the next 32 rows
};

struct StripProduct {
  enum class Start : std::uint8_t { zero, result };
  /// The place of finished sums in a dense fp32 matrix, for kernels with `finishes` alone.
  struct Finish {
    float* data = nullptr;        ///< of the first square; null: sums are written to `result`
    std::int64_t stride = 0;      ///< elements between rows
    const float* bias = nullptr;  ///< added; one per column, or null
    bool add = false;             ///< adds the sums to the matrix
  };
  LeftStrip left;
  const std::byte* right = nullptr;  ///< packed squares, one after another in depth
  std::int64_t right_across = 0;     ///< bytes between neighbouring columns of squares
  std::int64_t steps = 0;            ///< squares of depth
  std::int64_t squares = 1;          ///< columns of squares; at most Kernels::squares
  std::int64_t strips = 1;     ///< strips of 32 rows, one below another; at most Kernels::strips
  std::int64_t rows = kBlock;  ///< rows of the last strip that matter; others may stay
  float* result = nullptr;     ///< squares of 32 x 32, aligned to 64 bytes
  std::int64_t result_across = 0;       ///< elements between neighbouring squares
  std::int64_t result_down = 0;         ///< elements to the squares of the next strip
  std::int64_t result_stride = kBlock;  ///< elements between rows of a square
  Start start = Start::zero;            ///< the initial value of the sums
  Finish finish;
};

/// The destination of a dense square of a result.
struct Destination {
  enum class Mode : std::uint8_t { overwrite, add };
  void* data = nullptr;
  DType dtype = DType::fp32;  ///< bf16, fp16: rounded to nearest
  std::int64_t stride = 0;    ///< elements between rows
  std::int64_t rows = kBlock;
  std::int64_t columns = kBlock;
  const void* bias = nullptr;  ///< one per column, or null
  DType bias_dtype = DType::fp32;
  Mode mode = Mode::overwrite;
};

}  // namespace zero::cpu::packed
