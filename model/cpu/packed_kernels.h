// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>

#include "base/half.h"

namespace zero::cpu::packed {

/// The kernels of bf16 products on packed operands. Operands are cut into squares of kBlock x
/// kBlock elements, two tiles of 16 x 64 bytes each, in which pairs of neighbours in depth lie
/// together; a result's square is rows of fp32. For processors with AVX-512 and its bf16
/// products only.
inline constexpr std::int64_t kBlock = 32;
inline constexpr std::int64_t kBlockBytes = kBlock * kBlock * 2;
inline constexpr std::int64_t kResultFloats = kBlock * kBlock;

/// What multiplies.
enum class Unit : std::uint8_t {
  pairs,  ///< AVX-512, a pair in depth at a time
  tiles,  ///< AMX
};
/// Around multiply() calls of a thread.
void begin(Unit unit);
void end(Unit unit);

/// What 32 x 32 elements are, as they lie in memory (row, column).
enum class Form : std::uint8_t {
  left,              ///< of the left operand: row, depth
  left_transposed,   ///< of the left operand: depth, row
  right,             ///< of the right operand: depth, column
  right_transposed,  ///< of the right operand: column, depth
};

/// A square of an operand; what it lacks of 32 x 32 counts as zero.
struct Patch {
  const bfloat16* data = nullptr;
  std::int64_t stride = 0;  ///< elements between rows
  std::int64_t rows = kBlock;
  std::int64_t columns = kBlock;
};
/// Lays a square out as tiles want it: kBlockBytes, aligned to 64.
void pack(Form form, const Patch& patch, std::byte* to);

/// Squares of the left operand along the depth: packed, or as they lie in memory.
struct LeftStrip {
  const std::byte* upper = nullptr;  ///< rows 0 to 15 of the first square
  const std::byte* lower = nullptr;  ///< rows 16 to 31
  std::int64_t row_bytes = 0;        ///< between rows
  std::int64_t step_bytes = 0;       ///< between squares
};
struct StripProduct {
  enum class Start : std::uint8_t { zero, result };
  LeftStrip left;
  const std::byte* right = nullptr;     ///< packed squares, one after another
  std::int64_t steps = 0;               ///< squares of depth
  float* result = nullptr;              ///< of 32 x 32, aligned to 64
  std::int64_t result_stride = kBlock;  ///< elements between its rows
  Start start = Start::zero;            ///< what the sums are added to
};
void multiply(Unit unit, const StripProduct& product);

/// Where a square that multiply() left dense goes, rounded to nearest if T is bf16.
template <typename T>
struct Destination {
  enum class Mode : std::uint8_t { overwrite, add };
  T* data = nullptr;
  std::int64_t stride = 0;  ///< elements between rows
  std::int64_t rows = kBlock;
  std::int64_t columns = kBlock;
  const bfloat16* bias = nullptr;  ///< one a column, or none
  Mode mode = Mode::overwrite;
};
void store(const float* result, const Destination<float>& to);
void store(const float* result, const Destination<bfloat16>& to);

}  // namespace zero::cpu::packed
