// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>

namespace zero::host {

/// Copies memory that does not overlap around the caches, for values that would not stay in them:
/// lines of the destination are not fetched only to be overwritten.
void copy_around_caches(const std::byte* from, std::byte* to, std::int64_t bytes);

}  // namespace zero::host
