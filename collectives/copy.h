// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>

#include "device/view.h"

namespace zero {

/// to = from, unless they are the same memory; equal sizes in bytes. Synchronous, on the host.
inline void copy(View from, View to) {
  if (!to.empty() && from.data() != to.data()) {
    std::memcpy(to.data(), from.data(), static_cast<std::size_t>(to.bytes()));
  }
}

/// Copies with non-temporal stores, for values too large to stay in the caches: lines of the
/// destination are not fetched only to be overwritten. The ranges must not overlap.
void copy_around_caches(const std::byte* from, std::byte* to, std::int64_t bytes);

}  // namespace zero
