// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0

// Sums over rows: each chunk of kRowChunk rows in order, then the chunks in order.
#include "ops/cuda/lanes.cuh"
#include "ops/cuda/row_kernels.h"

namespace zero::cuda {
namespace {

template <Access access, class T>
__global__ void __launch_bounds__(128, 8)
    column_sum_rows(std::int64_t rows, std::int64_t columns, const T* x, float* partials) {
  const std::int64_t column = pack_of_thread() * kLanes<T>;
  if (column >= columns) return;
  const std::int64_t left = columns - column;
  const std::int64_t begin = static_cast<std::int64_t>(blockIdx.x) * Ops::kRowChunk;
  const std::int64_t end = begin + Ops::kRowChunk < rows ? begin + Ops::kRowChunk : rows;
  Lanes<T> sums{};
#pragma unroll 4
  for (std::int64_t row = begin; row < end; ++row) {
    const Lanes<T> values = read<access>(x + row * columns + column, left);
#pragma unroll
    for (int i = 0; i < kLanes<T>; ++i) sums.at[i] += values.at[i];
  }
  write<access>(sums, partials + blockIdx.x * columns + column, left);
}

constexpr int kFoldColumns = 32;  // per block: each warp reads 128 bytes of a chunk
constexpr int kFoldWarps = 8;
constexpr int kFoldChunks = 128;  // chunks that all warps load before one warp adds them

template <class T>
struct Fold {
  std::int64_t chunks;
  std::int64_t columns;  // of partials
  std::int64_t split;    // the first column of `second`
  const float* partials;
  T* first;
  T* second;
};

template <class T>
__global__ void __launch_bounds__(kFoldWarps * 32) fold_chunks(Fold<T> o) {
  ZERO_SHARED float tile[kFoldChunks * kFoldColumns];
  const int lane = static_cast<int>(threadIdx.x) % 32;
  const int warp = static_cast<int>(threadIdx.x) / 32;
  const std::int64_t column = static_cast<std::int64_t>(blockIdx.x) * kFoldColumns + lane;
  const bool inside = column < o.columns;
  float sum = 0;
  for (std::int64_t begin = 0; begin < o.chunks; begin += kFoldChunks) {
    const int count =
        static_cast<int>(o.chunks - begin < kFoldChunks ? o.chunks - begin : kFoldChunks);
    float read[kFoldChunks / kFoldWarps];  // all on their way at once
#pragma unroll
    for (int i = 0; i < kFoldChunks / kFoldWarps; ++i) {
      const int chunk = warp + i * kFoldWarps;
      read[i] = inside && chunk < count ? o.partials[(begin + chunk) * o.columns + column] : 0.0F;
    }
#pragma unroll
    for (int i = 0; i < kFoldChunks / kFoldWarps; ++i) {
      tile[(warp + i * kFoldWarps) * kFoldColumns + lane] = read[i];
    }
    __syncthreads();
    if (warp == 0) {
#pragma unroll 8
      for (int chunk = 0; chunk < count; ++chunk) {
        const float value = tile[chunk * kFoldColumns + lane];
        sum = begin + chunk == 0 ? value : sum + value;
      }
    }
    __syncthreads();
  }
  if (warp != 0 || !inside) return;
  if (column < o.split) {
    o.first[column] = rounded<T>(sum);
  } else {
    o.second[column - o.split] = rounded<T>(sum);
  }
}

template <class T>
void fold(cudaStream_t stream, std::int64_t chunks, const float* partials, View first,
          View second) {
  const std::int64_t columns = first.count() + second.count();
  launch("fold_partials", fold_chunks<T>,
         {.blocks = dim3(narrow<unsigned>(div_ceil(columns, kFoldColumns))),
          .threads = kFoldWarps * 32},
         stream,
         Fold<T>{chunks, columns, first.count(), partials, pointer<T>(first), pointer<T>(second)});
}

}  // namespace

std::int64_t partial_floats(std::int64_t rows, std::int64_t width) {
  return div_ceil(rows, Ops::kRowChunk) * width;
}

void fold_partials(cudaStream_t stream, std::int64_t chunks, const float* partials, View first,
                   View second) {
  if (first.dtype() == DType::bf16) {
    fold<bfloat16>(stream, chunks, partials, first, second);
  } else if (first.dtype() == DType::fp16) {
    fold<float16>(stream, chunks, partials, first, second);
  } else {
    fold<float>(stream, chunks, partials, first, second);
  }
}

void column_sums(cudaStream_t stream, const MatrixShape& s, View x, View sums, float* partials) {
  const std::int64_t chunks = div_ceil(s.rows, Ops::kRowChunk);
  with_access(s.dtype, s.columns, {x}, [&]<class T, class A>(std::type_identity<T>, A) {
    launch("column_sums", column_sum_rows<A::value, T>,
           row_grid(chunks, div_ceil(s.columns, kLanes<T>), 128), stream, s.rows, s.columns,
           pointer<T>(x), partials);
  });
  fold_partials(stream, chunks, partials, sums, View());
}

}  // namespace zero::cuda
