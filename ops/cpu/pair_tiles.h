// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>

#include "ops/cpu/packed_tiles.h"

namespace zero::cpu::packed {

/// A packed tile of bf16 is two of AMX, of 16 x 64 bytes each. The left operand's are rows 0 to 15
/// and 16 to 31; the right operand's are columns 0 to 15 and 16 to 31, in which neighbours in depth
/// are stored in pairs.
inline constexpr int kAmxRows = 16;
inline constexpr std::int64_t kAmxBytes = 1024;
inline constexpr std::int64_t kAmxStride = 64;
inline constexpr std::int64_t kTileBytes = kTile * kTile * 2;

/// Kernels::pack of bf16, for processors with AVX-512.
void pack_pairs(Form form, const Patch& patch, std::byte* to, std::int64_t step);

}  // namespace zero::cpu::packed
