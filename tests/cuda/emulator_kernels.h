// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>

namespace zero::cuda {

/// to[block] = the sum of the block's 256 elements, through shuffles and shared memory.
void block_sums(const float* from, float* to, unsigned blocks, cudaStream_t stream);
/// The same with the barrier left out.
void block_sums_without_barrier(const float* from, float* to, unsigned blocks, cudaStream_t stream);
/// Thread 0 ends before the barrier that the others come to.
void diverge(cudaStream_t stream);
/// Half of each warp comes to a shuffle.
void diverge_in_warps(cudaStream_t stream);
/// counter += threads; also through dynamic shared memory.
void count_threads(std::int32_t* counter, unsigned blocks, cudaStream_t stream);
/// Every other element, of `count` from the first on.
void set_every_other(std::uint16_t* elements, unsigned count, cudaStream_t stream);

}  // namespace zero::cuda
