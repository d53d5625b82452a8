// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string_view>

#include "device/view.h"
#include "partition/flat_layout.h"

namespace zero {

// Hashes of values, computed synchronously on the host. Hashes that are sums may be added over any
// split of a tensor into parts.

std::uint64_t hash_text(std::string_view text, std::uint64_t seed);

/// Hashes the bytes of host memory of any dtype.
std::uint64_t hash_values(const View& values, std::uint64_t seed);

/// The sum of the hashes of blocks of `block` elements, each hashed with `seed` and the index of
/// its first element; `begin`, the index of the first element of `values`, is a multiple of
/// `block`. Blocks of one element are several times slower.
std::uint64_t hash_blocks(std::uint64_t seed, std::int64_t begin, const View& values,
                          std::int64_t block = kAlignment);

}  // namespace zero
