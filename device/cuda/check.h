// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <driver_types.h>

#include <source_location>
#include <string_view>

namespace zero::cuda {

/// Throws zero::Error unless `status` is cudaSuccess, with the purpose of the call, CUDA's name and
/// text of the error, the call site, and whether the process's context is lost (a sticky error).
void check(cudaError_t status, std::string_view what,
           std::source_location where = std::source_location::current());

/// Whether `status` is a sticky error, which every later call of the process returns: a kernel
/// corrupted the context.
bool is_sticky(cudaError_t status);

}  // namespace zero::cuda
