// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#include <bit>
#include <utility>

#include "ops/cuda/lanes.cuh"
#include "ops/cuda/token_order.h"

namespace zero::cuda {
namespace {

constexpr int kDigits = 256;
constexpr int kThreads = 512;  // also rows per block
constexpr int kWarps = kThreads / 32;
constexpr int kScanThreads = 1024;

struct Pass {
  int count;
  int shift;
  int first;
  unsigned vocabulary;
  const std::int32_t* tokens;  // first pass only; null later
  const std::uint32_t* keys;
  const std::int32_t* rows;
  std::uint32_t* sorted_keys;
  std::int32_t* sorted_rows;
  int* counts;  // (digits, blocks): counts, then start offsets
};

__device__ __forceinline__ unsigned key_of(const Pass& o, int at) {
  if (o.tokens == nullptr) return o.keys[at];
  const auto token = static_cast<unsigned>(o.tokens[at] - o.first);  // negative wraps to huge
  return token < o.vocabulary ? token : o.vocabulary;
}

__device__ __forceinline__ int digit_of(const Pass& o, unsigned key) {
  return static_cast<int>(key >> o.shift) % kDigits;
}

__global__ void __launch_bounds__(kThreads) count_digits(Pass o) {
  ZERO_SHARED int counts[kDigits];
  const int thread = static_cast<int>(threadIdx.x);
  if (thread < kDigits) counts[thread] = 0;
  __syncthreads();
  const int at = static_cast<int>(blockIdx.x) * kThreads + thread;
  if (at < o.count) atomicAdd(&counts[digit_of(o, key_of(o, at))], 1);
  __syncthreads();
  if (thread < kDigits) {
    o.counts[thread * static_cast<int>(gridDim.x) + static_cast<int>(blockIdx.x)] = counts[thread];
  }
}

/// Exclusive prefix sum of counts, in one block.
__global__ void __launch_bounds__(kScanThreads) scan_counts(int count, int* counts) {
  ZERO_SHARED int sums[kScanThreads];
  const int thread = static_cast<int>(threadIdx.x);
  const int part = (count + kScanThreads - 1) / kScanThreads;
  const int begin = thread * part;
  const int end = begin + part < count ? begin + part : count;
  int own = 0;
  for (int i = begin; i < end; ++i) own += counts[i];
  sums[thread] = own;
  __syncthreads();
  for (int distance = 1; distance < kScanThreads; distance *= 2) {
    const int before = thread >= distance ? sums[thread - distance] : 0;
    __syncthreads();
    sums[thread] += before;
    __syncthreads();
  }
  int running = sums[thread] - own;
  for (int i = begin; i < end; ++i) running += std::exchange(counts[i], running);
}

/// A row's destination: after all smaller digits and all earlier blocks, warps and lanes.
__global__ void __launch_bounds__(kThreads) place_rows(Pass o) {
  ZERO_SHARED int starts[kWarps * kDigits];
  const int thread = static_cast<int>(threadIdx.x);
  for (int i = thread; i < kWarps * kDigits; i += kThreads) starts[i] = 0;
  __syncthreads();
  const int at = static_cast<int>(blockIdx.x) * kThreads + thread;
  const int lane = thread % 32;
  int* const of_warp = starts + thread / 32 * kDigits;
  const unsigned key = at < o.count ? key_of(o, at) : 0;
  const int digit = at < o.count ? digit_of(o, key) : kDigits;
  int before = 0;
  int same = 1;
#pragma unroll
  for (int other = 1; other < 32; ++other) {
    if (__shfl_xor_sync(~0U, digit, other) != digit) continue;
    ++same;
    if ((lane ^ other) < lane) ++before;
  }
  if (before == 0 && digit < kDigits) of_warp[digit] = same;
  __syncthreads();
  if (thread < kDigits) {
    int start = o.counts[thread * static_cast<int>(gridDim.x) + static_cast<int>(blockIdx.x)];
    for (int warp = 0; warp < kWarps; ++warp) {
      start += std::exchange(starts[warp * kDigits + thread], start);
    }
  }
  __syncthreads();
  if (at >= o.count) return;
  const int place = of_warp[digit] + before;
  o.sorted_keys[place] = key;
  o.sorted_rows[place] = o.tokens != nullptr ? at : o.rows[at];
}

std::int64_t blocks_of(const EmbeddingShape& s) { return div_ceil(s.batch * s.sequence, kThreads); }

}  // namespace

std::int64_t token_order_bytes(const EmbeddingShape& s) {
  // Two arrays of keys, two of rows, the counts.
  return 4 * (4 * s.batch * s.sequence + kDigits * blocks_of(s));
}

TokenOrder order_tokens(cudaStream_t stream, const EmbeddingShape& s, View tokens, void* scratch) {
  const int rows = narrow<int>(s.batch * s.sequence);
  auto* const keys = static_cast<std::uint32_t*>(scratch);
  auto* const order = reinterpret_cast<std::int32_t*>(keys + 2 * rows);
  auto* const counts = order + 2 * rows;
  Pass pass{rows,
            0,
            narrow<int>(s.first),
            narrow<unsigned>(s.vocabulary),
            pointer<std::int32_t>(tokens),
            keys + rows,
            order + rows,
            keys,
            order,
            counts};
  const auto blocks = narrow<unsigned>(blocks_of(s));
  const Grid grid{.blocks = dim3(blocks), .threads = kThreads};
  const int bits = std::bit_width(pass.vocabulary);
  for (; pass.shift < bits; pass.shift += std::countr_zero(unsigned{kDigits})) {
    launch("order_tokens: count", count_digits, grid, stream, pass);
    launch("order_tokens: scan", scan_counts, {.blocks = dim3(1), .threads = kScanThreads}, stream,
           kDigits * static_cast<int>(blocks), counts);
    launch("order_tokens: place", place_rows, grid, stream, pass);
    pass.tokens = nullptr;
    pass.keys = std::exchange(pass.sorted_keys, const_cast<std::uint32_t*>(pass.keys));
    pass.rows = std::exchange(pass.sorted_rows, const_cast<std::int32_t*>(pass.rows));
  }
  return {pass.keys, pass.rows};
}

}  // namespace zero::cuda
