// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

namespace zero {

/// CRC32C (Castagnoli) of `bytes`, continued from `seed`, the sum of the bytes before them:
/// crc32c(b, crc32c(a)) is the sum of a and b together. Runs at memory speed where the processor
/// has SSE 4.2.
std::uint32_t crc32c(std::span<const std::byte> bytes, std::uint32_t seed = 0);

/// The same sum from tables, for processors without the instruction.
std::uint32_t crc32c_by_table(std::span<const std::byte> bytes, std::uint32_t seed = 0);

}  // namespace zero
