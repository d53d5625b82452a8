// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace zero {

/// The bytes of "8GiB" or "7.5 GB": GB and MB are 10^9 and 10^6 bytes, GiB and MiB 2^30 and 2^20.
/// Throws zero::Error naming `option`, the text found and the units: a number without one may mean
/// either.
std::int64_t memory_size(std::string_view text, std::string_view option);

}  // namespace zero
