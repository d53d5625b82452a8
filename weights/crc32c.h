// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

namespace zero {

/// CRC32C (Castagnoli) of `bytes`, of which there are less than 2 GiB. Runs at memory speed.
std::uint32_t crc32c(std::span<const std::byte> bytes);

}  // namespace zero
