// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <limits>
#include <string_view>

#include "base/dtype.h"

namespace zero {

/// The memory format of an optimizer's moments. The update itself is in fp32: a moment is read to
/// fp32, changed, and stored in the format, in one pass over memory.
enum class MomentFormat : std::uint8_t {
  fp32,
  bf16,       ///< 2 bytes, rounded stochastically (optim/moment_rounding.inc)
  eight_bit,  ///< 1 byte, and an fp32 scale for kMomentBlock elements (optim/moment_codes.inc)
};
/// "fp32", "bf16" or "8bit".
std::string_view name_of(MomentFormat format);
/// The format of that name; throws zero::Error listing all names if there is none.
MomentFormat moment_format_from_name(std::string_view name);

/// The dtype of a moment's values in memory: fp32, bf16, or u8 for codes.
constexpr DType moment_dtype(MomentFormat format) {
  if (format == MomentFormat::eight_bit) return DType::u8;
  return format == MomentFormat::bf16 ? DType::bf16 : DType::fp32;
}

/// Elements of an 8-bit moment that have one scale in common. Blocks begin at multiples of it in
/// the flat layout.
inline constexpr std::int64_t kMomentBlock = 256;
/// Elements that moments of a format are cut at multiples of: whole blocks, or anywhere (1).
constexpr std::int64_t moment_block(MomentFormat format) {
  return format == MomentFormat::eight_bit ? kMomentBlock : 1;
}

/// Names the elements of an update for stochastic rounding, whatever rank owns them: element i of
/// the update is element at(i) of the logical tensor.
struct LogicalElements {
  std::uint64_t parameter = 0;  ///< a hash of the parameter's full name
  std::int64_t first = 0;
  std::int64_t run = std::numeric_limits<std::int64_t>::max();  ///< consecutive elements
  std::int64_t stride = 0;  ///< from the first element of a run to that of the next

  constexpr std::int64_t at(std::int64_t i) const { return first + i / run * stride + i % run; }
};

}  // namespace zero
