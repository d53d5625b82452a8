// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#include "device/cuda/launch.cuh"
#include "tests/cuda/emulator_kernels.h"

namespace zero::cuda {
namespace {

__device__ float warp_sum(float value) {
  for (int distance = 16; distance > 0; distance /= 2) {
    value += __shfl_xor_sync(~0U, value, distance);
  }
  return value;
}

template <bool barrier>
__global__ void sums(const float* from, float* to) {
  ZERO_SHARED float parts[8];
  const float sum = warp_sum(from[blockIdx.x * blockDim.x + threadIdx.x]);
  if (threadIdx.x % 32 == 0) parts[threadIdx.x / 32] = sum;
  if constexpr (barrier) __syncthreads();
  if (threadIdx.x != 0) return;
  float all = 0;
  for (const float part : parts) all += part;
  to[blockIdx.x] = all;
}

__global__ void early_end() {
  if (threadIdx.x == 0) return;
  __syncthreads();
}

__global__ void half_warp() {
  if (threadIdx.x % 32 < 16) __shfl_down_sync(~0U, 1.0F, 1);
}

__global__ void count(std::int32_t* counter) {
  auto* const ones = shared<std::int32_t>();
  ones[threadIdx.x] = 1;
  __syncthreads();
  atomicAdd(counter, ones[(threadIdx.x + 1) % blockDim.x]);
}

__global__ void every_other(std::uint16_t* elements, unsigned count) {
  const unsigned at = 2 * threadIdx.x;
  if (at < count) elements[at] = 1;
}

}  // namespace

void block_sums(const float* from, float* to, unsigned blocks, cudaStream_t stream) {
  launch("block_sums", sums<true>, {dim3(blocks)}, stream, from, to);
}

void block_sums_without_barrier(const float* from, float* to, unsigned blocks,
                                cudaStream_t stream) {
  launch("block_sums_without_barrier", sums<false>, {dim3(blocks)}, stream, from, to);
}

void diverge(cudaStream_t stream) { launch("diverge", early_end, {dim3(2)}, stream); }

void diverge_in_warps(cudaStream_t stream) {
  launch("diverge_in_warps", half_warp, {dim3(2)}, stream);
}

void count_threads(std::int32_t* counter, unsigned blocks, cudaStream_t stream) {
  launch("count_threads", count, {dim3(blocks), 64, 64 * sizeof(std::int32_t)}, stream, counter);
}

void set_every_other(std::uint16_t* elements, unsigned count, cudaStream_t stream) {
  launch("set_every_other", every_other, {dim3(1)}, stream, elements, count);
}

}  // namespace zero::cuda
