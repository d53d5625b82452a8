// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>

#include "optim/update.h"

namespace zero::cuda {

/// Updates `count` > 0 elements of device memory in one pass on `stream`; same bits as on the CPU.
void update_adamw(const AdamConstants& constants, const UpdateMemory& memory, std::int64_t count,
                  cudaStream_t stream);
void update_adam(const AdamConstants& constants, const UpdateMemory& memory, std::int64_t count,
                 cudaStream_t stream);
/// Uses moment0 unless it is null.
void update_sgd(const SgdConstants& constants, const UpdateMemory& memory, std::int64_t count,
                cudaStream_t stream);

}  // namespace zero::cuda
