// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0

// Layer norm, and RMS norm as a layer norm without mean and bias: one block per row, with the row's
// packs in registers if there are at most as many as threads.
#include "model/cuda/lanes.cuh"
#include "model/cuda/norm_statistics.cuh"
#include "model/cuda/row_kernels.h"

namespace zero::cuda {
namespace {

constexpr int kMostThreads = 1024;

template <class T>
struct Forward {
  int columns;
  const T* x;
  const T* delta;  // may be null, like sum
  T* sum;
  const T* weight;
  const T* bias;  // null: RMS norm
  T* y;
  float* statistics;
  float epsilon;
};

/// Pack `pack` of the row to normalise: x, or x + delta rounded, which is also stored to sum.
template <Access access, class T>
__device__ __forceinline__ Lanes<T> residual(const Forward<T>& o, std::int64_t at, int left) {
  Lanes<T> values = read<access>(o.x + at, left);
  if (o.delta == nullptr) return values;
  const Lanes<T> delta = read<access>(o.delta + at, left);
#pragma unroll
  for (int i = 0; i < kLanes<T>; ++i) {
    values.at[i] = as_float(rounded<T>(values.at[i] + delta.at[i]));
  }
  write<access>(values, o.sum + at, left);
  return values;
}

template <NormKind kind, Access access, class T>
__device__ __forceinline__ void normalise(const Forward<T>& o, const Statistics<kind>& statistics,
                                          const Lanes<T>& x, std::int64_t at, int column) {
  const int left = o.columns - column;
  Lanes<T> weight = read<access>(o.weight + column, left);
  complete_weight<kind>(weight);
  Lanes<T> bias{};
  if constexpr (kind == NormKind::layer) bias = read<access>(o.bias + column, left);
  Lanes<T> y;
#pragma unroll
  for (int i = 0; i < kLanes<T>; ++i) {
    const float normed = statistics.normed(x.at[i]);
    y.at[i] =
        kind == NormKind::layer ? fmaf(normed, weight.at[i], bias.at[i]) : normed * weight.at[i];
  }
  write<access>(y, o.y + at, left);
}

template <NormKind kind, Access access, class T>
__global__ void __launch_bounds__(kMostThreads) norm_forward_rows(Forward<T> o) {
  auto* const place = shared<float>();
  const std::int64_t row = static_cast<std::int64_t>(blockIdx.x) * o.columns;
  const T* const source = o.delta == nullptr ? o.x : o.sum;
  const int own = static_cast<int>(threadIdx.x) * kLanes<T>;
  const int step = static_cast<int>(blockDim.x) * kLanes<T>;
  Lanes<T> held{};
  float total = 0;
  for (int column = own; column < o.columns; column += step) {
    const Lanes<T> x = residual<access>(o, row + column, o.columns - column);
    if (column == own) held = x;
#pragma unroll
    for (int i = 0; i < kLanes<T>; ++i) {
      total = kind == NormKind::layer ? total + x.at[i] : fmaf(x.at[i], x.at[i], total);
    }
  }
  const float inverse = 1.0F / static_cast<float>(o.columns);
  Statistics<kind> statistics{0.0F, 0.0F};
  const auto pack = [&](int column) {
    return column == own ? held : read<access>(source + row + column, o.columns - column);
  };
  if constexpr (kind == NormKind::layer) {
    statistics.mean = block_sum(total, place) * inverse;
    total = 0;
    for (int column = own; column < o.columns; column += step) {
      const Lanes<T> x = pack(column);
#pragma unroll
      for (int i = 0; i < kLanes<T>; ++i) {
        const float off = column + i < o.columns ? x.at[i] - statistics.mean : 0.0F;
        total = fmaf(off, off, total);
      }
    }
  }
  const float variance = block_sum(total, place + 32) * inverse + o.epsilon;
  statistics.scale = 1.0F / sqrtf(variance);
  if (threadIdx.x == 0) statistics.keep(o.statistics, blockIdx.x);
  for (int column = own; column < o.columns; column += step) {
    normalise<kind, access>(o, statistics, pack(column), row + column, column);
  }
}

/// On a row_grid.
template <NormKind kind, Access access, class T>
__global__ void __launch_bounds__(256) norm_apply_rows(Forward<T> o) {
  const std::int64_t column = pack_of_thread() * kLanes<T>;
  if (column >= o.columns) return;
  const std::int64_t at = static_cast<std::int64_t>(blockIdx.x) * o.columns + column;
  const Lanes<T> x = read<access>(o.x + at, o.columns - column);
  normalise<kind, access>(o, Statistics<kind>::of_row(o.statistics, blockIdx.x), x, at,
                          static_cast<int>(column));
}

template <class T>
Forward<T> typed(const MatrixShape& s, const NormForward& o) {
  return {narrow<int>(s.columns),
          pointer<T>(o.x),
          pointer<T>(o.delta),
          pointer<T>(o.sum),
          pointer<T>(o.weight),
          pointer<T>(o.bias),
          pointer<T>(o.y),
          pointer<float>(o.statistics),
          o.epsilon};
}

template <NormKind kind>
void forward(cudaStream_t stream, const MatrixShape& s, const NormForward& o) {
  with_access(s.dtype, s.columns, {o.x, o.delta, o.sum, o.weight, o.bias, o.y},
              [&]<class T, class A>(std::type_identity<T>, A) {
                const std::int64_t packs = div_ceil(s.columns, kLanes<T>);
                launch("norm_forward", norm_forward_rows<kind, A::value, T>,
                       {.blocks = dim3(narrow<unsigned>(s.rows)),
                        .threads = threads_for(packs, kMostThreads),
                        .shared_bytes = block_bytes(2)},
                       stream, typed<T>(s, o));
              });
}

template <NormKind kind>
void apply(cudaStream_t stream, const MatrixShape& s, const NormForward& o) {
  with_access(s.dtype, s.columns, {o.x, o.weight, o.bias, o.y},
              [&]<class T, class A>(std::type_identity<T>, A) {
                launch("norm_apply", norm_apply_rows<kind, A::value, T>,
                       row_grid(s.rows, div_ceil(s.columns, kLanes<T>)), stream, typed<T>(s, o));
              });
}

}  // namespace

void norm_forward(cudaStream_t stream, const MatrixShape& shape, const NormForward& o) {
  with_kind(o.kind(), [&]<class Kind>(Kind) { forward<Kind::value>(stream, shape, o); });
}

void norm_apply(cudaStream_t stream, const MatrixShape& shape, const NormForward& o) {
  with_kind(o.kind(), [&]<class Kind>(Kind) { apply<Kind::value>(stream, shape, o); });
}

}  // namespace zero::cuda
