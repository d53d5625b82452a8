// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "ops/cuda/attention.h"
#include "ops/cuda/formulas.cuh"
#include "ops/cuda/lanes.cuh"

/// Building blocks of our own attention kernels: tiles of 32 rows of a head in shared memory, as
/// floats. Each of a block's 4 warps owns 8 rows of one tile; its lanes are the 32 rows of the
/// other, or the columns of a head.
namespace zero::cuda {

inline constexpr int kTileRows = 32;
inline constexpr int kTileWarps = 4;
inline constexpr int kTileThreads = kTileWarps * 32;
inline constexpr int kOwnRows = kTileRows / kTileWarps;
inline constexpr int kScoreStride = kTileRows + 1;

/// Floats between rows of a tile for heads of up to 32 * parts elements: odd, so that lanes reading
/// one column of their rows have no bank conflicts.
template <int parts>
inline constexpr int kTileStride = 32 * parts + 1;

template <class T>
struct AttentionPointers {
  const T* qkv;
  T* out;  // read by backward
  float* logsumexp;
  const T* dout;
  T* dqkv;
  float* deltas;  // (batch, heads, sequence): the rows' dout . out
};

/// Sizes for the kernels.
struct AttentionSizes {
  int sequence;
  int heads;
  int queries_per_kv;
  int head_width;
  std::int64_t qkv_width;
  float scale;
  int window;  // positions that a query sees

  /// The tile that holds the first key that a query of the tile from `first` on sees.
  __device__ __forceinline__ int first_key(int first) const {
    const int key = first + 1 - window;
    return key <= 0 ? 0 : key / kTileRows * kTileRows;
  }
  /// Behind the last query that sees a key of the tile from `first` on.
  __device__ __forceinline__ int end_of_queries(int first) const {
    const int behind = first + kTileRows - 1 + window;
    return behind < sequence ? behind : sequence;
  }
  __device__ __forceinline__ bool sees(int query, int key) const {
    return key <= query && key > query - window;
  }

  /// The element where part 0 (q), 1 (k) or 2 (v) of a row's head begins; `head` of its own kind.
  __device__ __forceinline__ std::int64_t in_qkv(std::int64_t row, int part, int head) const {
    const int before = part == 0 ? head : heads + (part - 1) * (heads / queries_per_kv) + head;
    return row * qkv_width + std::int64_t{before} * head_width;
  }
  __device__ __forceinline__ std::int64_t in_out(std::int64_t row, int head) const {
    return (row * heads + head) * head_width;
  }
  __device__ __forceinline__ std::int64_t in_sums(int batch, int head, int position) const {
    return (std::int64_t{batch} * heads + head) * sequence + position;
  }
};

/// Loads 32 rows of one head from row `first` on, with zeros after the end of the sequence and the
/// head.
template <int parts, class T>
__device__ __forceinline__ void load_tile(const AttentionSizes& s, const T* from,
                                          std::int64_t stride, int first, float* tile) {
  for (int i = static_cast<int>(threadIdx.x); i < kTileRows * 32 * parts; i += kTileThreads) {
    const int row = i / (32 * parts);
    const int column = i % (32 * parts);
    const bool inside = first + row < s.sequence && column < s.head_width;
    tile[row * kTileStride<parts> + column] =
        inside ? as_float(from[(first + row) * stride + column]) : 0.0F;
  }
}

/// products[r] = own row r of `own` times the lane's row of `other`.
template <int parts>
__device__ __forceinline__ void multiply_rows(const float* own, const float* other,
                                              float (&products)[kOwnRows]) {
  constexpr int kStride = kTileStride<parts>;
  const float* const of_warp = own + threadIdx.x / 32 * kOwnRows * kStride;
  const float* const of_lane = other + threadIdx.x % 32 * kStride;
#pragma unroll
  for (int r = 0; r < kOwnRows; ++r) products[r] = 0;
#pragma unroll 4
  for (int d = 0; d < 32 * parts; ++d) {
    const float value = of_lane[d];
#pragma unroll
    for (int r = 0; r < kOwnRows; ++r) {
      products[r] = fmaf(of_warp[r * kStride + d], value, products[r]);
    }
  }
}

/// A warp's rows of a result: columns lane, lane + 32, ...
template <int parts>
struct OwnRows {
  float at[kOwnRows][parts];
};

/// sums += the warp's rows of `scores` (kScoreStride) times the rows of `tile`.
template <int parts>
__device__ __forceinline__ void add_product(const float* scores, const float* tile,
                                            OwnRows<parts>& sums) {
  const float* const of_warp = scores + threadIdx.x / 32 * kOwnRows * kScoreStride;
  const float* const of_lane = tile + threadIdx.x % 32;
#pragma unroll 4
  for (int j = 0; j < kTileRows; ++j) {
    float values[parts];
#pragma unroll
    for (int c = 0; c < parts; ++c) values[c] = of_lane[j * kTileStride<parts> + 32 * c];
#pragma unroll
    for (int r = 0; r < kOwnRows; ++r) {
      const float score = of_warp[r * kScoreStride + j];
#pragma unroll
      for (int c = 0; c < parts; ++c) sums.at[r][c] = fmaf(score, values[c], sums.at[r][c]);
    }
  }
}

/// Writes the warp's row `first` + r, times factors[r], to `to` + r * stride.
template <int parts, class T>
__device__ __forceinline__ void store_rows(const AttentionSizes& s, const OwnRows<parts>& rows,
                                           const float (&factors)[kOwnRows], int first, T* to,
                                           std::int64_t stride) {
#pragma unroll
  for (int r = 0; r < kOwnRows; ++r) {
#pragma unroll
    for (int c = 0; c < parts; ++c) {
      const int column = static_cast<int>(threadIdx.x % 32) + 32 * c;
      if (first + r < s.sequence && column < s.head_width) {
        to[(first + r) * stride + column] = rounded<T>(rows.at[r][c] * factors[r]);
      }
    }
  }
}

}  // namespace zero::cuda
