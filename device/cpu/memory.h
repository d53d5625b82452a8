// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

namespace zero::cpu {

/// Uninitialised host memory aligned to 64 bytes; from 2 MiB on in whole pages, aligned for huge
/// pages and returned to the system when freed. `bytes` > 0; null if out of memory.
void* allocate_memory(std::int64_t bytes);
/// Frees memory of allocate_memory(bytes).
void free_memory(void* data, std::int64_t bytes) noexcept;
/// What allocate_memory(bytes) takes of the host, in whole pages or lines of 64 bytes.
std::int64_t taken_by(std::int64_t bytes);

}  // namespace zero::cpu
