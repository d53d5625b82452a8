// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string_view>

#include "device/host_pieces.h"
#include "device/view.h"
#include "partition/flat_layout.h"

namespace zero {

// Hashes of values on the host, at once. Those that are sums may be added over any split of a
// tensor into parts.

std::uint64_t hash_text(std::string_view text, std::uint64_t seed);

/// The bytes of a device's view, of any dtype, by way of `pieces`: the same on devices whose pieces
/// are of one size.
std::uint64_t hash_values(HostPieces& pieces, const View& values);

/// The sum of the hashes of blocks of `block` elements, each hashed with `seed` and its place, that
/// of its first element; `begin`, the place of the first element, is a multiple of `block`. Blocks
/// of one element are several times slower.
std::uint64_t hash_blocks(std::uint64_t seed, std::int64_t begin, const View& values,
                          std::int64_t block = kAlignment);

}  // namespace zero
