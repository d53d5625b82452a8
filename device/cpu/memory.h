// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

namespace zero::cpu {

/// Uninitialised host memory aligned to 64 bytes; from 2 MiB on whole pages, aligned so that the
/// kernel may back them with huge ones, given back to it when freed. `bytes` > 0; null when there
/// is none.
void* allocate_memory(std::int64_t bytes);
/// Frees memory of allocate_memory(bytes).
void free_memory(void* data, std::int64_t bytes) noexcept;

}  // namespace zero::cpu
