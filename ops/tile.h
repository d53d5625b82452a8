// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

namespace zero {

/// CPUs cut the operands of products into tiles of kTile x kTile elements; a row of tiles is a row
/// panel, a column of tiles a column block. Scales of quantized weights lie by as many columns.
inline constexpr std::int64_t kTile = 32;
inline constexpr std::int64_t kTileElements = kTile * kTile;

/// The tiles that cover `count` rows, columns or elements of depth.
constexpr std::int64_t count_tiles(std::int64_t count) { return (count + kTile - 1) / kTile; }

}  // namespace zero
