// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>

namespace zero::host {

/// Copies with non-temporal stores, for values too large to stay in the caches: lines of the
/// destination are not fetched only to be overwritten. The ranges must not overlap.
void copy_around_caches(const std::byte* from, std::byte* to, std::int64_t bytes);

}  // namespace zero::host
