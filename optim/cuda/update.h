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

/// The elements of one update, `count` > 0, and the stream that runs it.
struct Extent {
  std::int64_t count;
  cudaStream_t stream;
};
/// The same for moments in a small format: `memory` has none.
void update_small_adamw(const AdamConstants& constants, const UpdateMemory& memory,
                        const SmallMoments& moments, const Extent& extent);
void update_small_adam(const AdamConstants& constants, const UpdateMemory& memory,
                       const SmallMoments& moments, const Extent& extent);
void update_small_sgd(const SgdConstants& constants, const UpdateMemory& memory,
                      const SmallMoments& moments, const Extent& extent);
/// Optimizer::decode of checked views that are not empty.
void decode(const CodedMoment& from, const View& to, cudaStream_t stream);

}  // namespace zero::cuda
