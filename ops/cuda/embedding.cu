// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#include <bit>
#include <utility>

#include "ops/cuda/lanes.cuh"
#include "ops/cuda/row_kernels.h"

namespace zero::cuda {
namespace {

/// The rows of a batch sorted by token, stable: rows of equal tokens are in row order.
struct TokenOrder {
  const std::uint32_t* tokens = nullptr;  ///< minus `first`; `vocabulary` if outside the table
  const std::int32_t* rows = nullptr;
};

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

/// Enqueues a radix sort of `tokens`, i32, 8 bits per pass, stable, hence deterministic. The result
/// is in `scratch`.
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

template <class T>
struct Forward {
  std::int64_t width;
  int sequence;
  int first;
  unsigned vocabulary;
  const std::int32_t* tokens;
  const T* token_weight;
  const T* position_weight;  // may be null
  T* x;
};

/// On a row_grid.
template <Access access, class T>
__global__ void __launch_bounds__(256) embed_rows(Forward<T> o) {
  const std::int64_t column = pack_of_thread() * kLanes<T>;
  if (column >= o.width) return;
  const std::int64_t left = o.width - column;
  const auto token = static_cast<unsigned>(o.tokens[blockIdx.x] - o.first);
  Lanes<T> x{};
  if (token < o.vocabulary) x = read<access>(o.token_weight + token * o.width + column, left);
  if (o.position_weight != nullptr) {
    const std::int64_t position = blockIdx.x % o.sequence;
    const Lanes<T> more = read<access>(o.position_weight + position * o.width + column, left);
#pragma unroll
    for (int i = 0; i < kLanes<T>; ++i) x.at[i] += more.at[i];
  }
  write<access>(x, o.x + blockIdx.x * o.width + column, left);
}

template <class T>
struct Backward {
  std::int64_t width;
  std::int64_t batch;
  std::int64_t sequence;
  unsigned vocabulary;
  TokenOrder order;
  const T* dx;
  float* gradient;  // of the table
};

/// Adds to one row of the table of positions; on a row_grid of the sequence.
template <Access access, class T>
__global__ void __launch_bounds__(128) add_positions(Backward<T> o) {
  const std::int64_t column = pack_of_thread() * kLanes<T>;
  if (column >= o.width) return;
  const std::int64_t left = o.width - column;
  float* const gradient = o.gradient + blockIdx.x * o.width + column;
  auto sums = read_lanes<access, kLanes<T>>(gradient, left);
#pragma unroll 4
  for (std::int64_t i = 0; i < o.batch; ++i) {
    const std::int64_t row = i * o.sequence + blockIdx.x;
    const Lanes<T> dx = read<access>(o.dx + row * o.width + column, left);
#pragma unroll
    for (int k = 0; k < kLanes<T>; ++k) sums.at[k] += dx.at[k];
  }
  write<access>(sums, gradient, left);
}

/// On a row_grid of the ordered rows: the block of a token's first row adds all rows of that token.
/// Common tokens have many rows, so several are read before the first is added.
template <Access access, class T>
__global__ void __launch_bounds__(128, 1) add_tokens(Backward<T> o) {
  constexpr int kBatch = 8;
  const std::int64_t column = pack_of_thread() * kLanes<T>;
  const std::int64_t rows = o.batch * o.sequence;
  const std::int64_t begin = blockIdx.x;
  const unsigned token = o.order.tokens[begin];
  const bool opens = begin == 0 || o.order.tokens[begin - 1] != token;
  if (!opens || token == o.vocabulary || column >= o.width) return;
  const std::int64_t left = o.width - column;
  float* const gradient = o.gradient + token * o.width + column;
  auto sums = read_lanes<access, kLanes<T>>(gradient, left);
  for (std::int64_t at = begin; at < rows && o.order.tokens[at] == token; at += kBatch) {
    Lanes<T> dx[kBatch] = {};
    bool own[kBatch];
#pragma unroll
    for (int k = 0; k < kBatch; ++k) {
      own[k] = at + k < rows && o.order.tokens[at + k] == token;
      if (!own[k]) continue;
      dx[k] = read<access>(o.dx + o.order.rows[at + k] * o.width + column, left);
    }
#pragma unroll
    for (int k = 0; k < kBatch; ++k) {
#pragma unroll
      for (int i = 0; i < kLanes<T>; ++i) {
        if (own[k]) sums.at[i] += dx[k].at[i];
      }
    }
  }
  write<access>(sums, gradient, left);
}

}  // namespace

void embedding_forward(cudaStream_t stream, const EmbeddingShape& s, View tokens, View token_weight,
                       View position_weight, View x) {
  with_access(
      s.dtype, s.width, {token_weight, position_weight, x},
      [&]<class T, class A>(std::type_identity<T>, A) {
        launch("embedding_forward", embed_rows<A::value, T>,
               row_grid(s.batch * s.sequence, div_ceil(s.width, kLanes<T>)), stream,
               Forward<T>{s.width, narrow<int>(s.sequence), narrow<int>(s.first),
                          narrow<unsigned>(s.vocabulary), pointer<std::int32_t>(tokens),
                          pointer<T>(token_weight), pointer<T>(position_weight), pointer<T>(x)});
      });
}

std::int64_t embedding_bytes(const EmbeddingShape& s) {
  // Two arrays of keys, two of rows, the counts.
  return 4 * (4 * s.batch * s.sequence + kDigits * blocks_of(s));
}

void embedding_backward(cudaStream_t stream, const EmbeddingShape& s, const EmbeddingBackward& o) {
  const TokenOrder order = order_tokens(stream, s, o.tokens, o.scratch);
  with_access(s.dtype, s.width, {o.dx, o.token_gradient, o.position_gradient},
              [&]<class T, class A>(std::type_identity<T>, A) {
                const std::int64_t packs = div_ceil(s.width, kLanes<T>);
                Backward<T> operands{s.width,
                                     s.batch,
                                     s.sequence,
                                     narrow<unsigned>(s.vocabulary),
                                     order,
                                     pointer<T>(o.dx),
                                     pointer<float>(o.token_gradient)};
                launch("embedding_backward: tokens", add_tokens<A::value, T>,
                       row_grid(s.batch * s.sequence, packs, 128), stream, operands);
                if (o.position_gradient.empty()) return;
                operands.gradient = pointer<float>(o.position_gradient);
                launch("embedding_backward: positions", add_positions<A::value, T>,
                       row_grid(s.sequence, packs, 128), stream, operands);
              });
}

}  // namespace zero::cuda
