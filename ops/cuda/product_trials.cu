// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#include <array>

#include "base/checked_math.h"
#include "device/cuda/launch.cuh"
#include "ops/cuda/product_trials.h"

namespace zero::cuda {
namespace {

constexpr int kBlocks = kDigestBytes / 8;
constexpr int kThreads = 256;
constexpr double kWorthwhile = 0.98;  // of the first kernel's time

using Digest = unsigned long long;

// The finalizer of MurmurHash3 (Appleby, public domain): every bit of the value and its place
// counts.
__device__ __forceinline__ Digest mixed(Digest value) {
  value ^= value >> 33;
  value *= 0xff51afd7ed558ccdULL;
  value ^= value >> 33;
  value *= 0xc4ceb9fe1a85ec53ULL;
  return value ^ value >> 33;
}

/// Each block adds up its part: sums of integers have no order.
__global__ void __launch_bounds__(kThreads)
    digest_halves(const std::uint16_t* halves, std::int64_t count, Digest* sums) {
  ZERO_SHARED Digest of_threads[kThreads];
  Digest sum = 0;
  const std::int64_t step = std::int64_t{kBlocks} * kThreads;
  for (std::int64_t i = static_cast<std::int64_t>(blockIdx.x) * kThreads + threadIdx.x; i < count;
       i += step) {
    sum += mixed(static_cast<Digest>(i) << 16 | halves[i]);
  }
  of_threads[threadIdx.x] = sum;
  __syncthreads();
  if (threadIdx.x != 0) return;
  for (int i = 1; i < kThreads; ++i) sum += of_threads[i];
  sums[blockIdx.x] = sum;
}

}  // namespace

std::uint64_t digest(cudaStream_t stream, const void* data, std::int64_t bytes, void* scratch) {
  ZERO_CHECK(bytes % 2 == 0, "cuda: a digest of {} bytes; expected a multiple of 2", bytes);
  launch("digest", digest_halves, {.blocks = dim3(kBlocks), .threads = kThreads}, stream,
         static_cast<const std::uint16_t*>(data), bytes / 2, static_cast<Digest*>(scratch));
  std::array<Digest, kBlocks> sums{};
  check(cudaMemcpyAsync(sums.data(), scratch, sizeof sums, cudaMemcpyDefault, stream),
        "copy a digest");
  check(cudaStreamSynchronize(stream), "wait for a digest");
  std::uint64_t all = 0;
  for (const Digest sum : sums) all += sum;
  return all;
}

std::size_t fastest_of_equals(std::span<const ProductTrial> trials) {
  std::size_t best = 0;
  double limit = trials.front().seconds * kWorthwhile;
  for (std::size_t i = 1; i < trials.size(); ++i) {
    if (trials[i].bits != trials.front().bits || trials[i].seconds >= limit) continue;
    best = i;
    limit = trials[i].seconds;
  }
  return best;
}

}  // namespace zero::cuda
