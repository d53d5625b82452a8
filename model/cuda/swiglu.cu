// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#include "model/cuda/formulas.cuh"
#include "model/cuda/lanes.cuh"
#include "model/cuda/row_kernels.h"

namespace zero::cuda {
namespace {

/// x (rows, 2 columns) to y (rows, columns); on a row_grid.
template <Access access, class T>
__global__ void __launch_bounds__(256) swiglu_rows(std::int64_t columns, const T* x, T* y) {
  const std::int64_t column = pack_of_thread() * kLanes<T>;
  if (column >= columns) return;
  const std::int64_t left = columns - column;
  const std::int64_t at = blockIdx.x * columns + column;
  const T* const gates = x + at + blockIdx.x * columns;
  const Lanes<T> gate = read<access>(gates, left);
  const Lanes<T> value = read<access>(gates + columns, left);
  Lanes<T> output;
#pragma unroll
  for (int i = 0; i < kLanes<T>; ++i) {
    output.at[i] = Formulas{}.swiglu(gate.at[i], value.at[i]);
  }
  write<access>(output, y + at, left);
}

/// Overwrites x with its gradient and dy with y.
template <Access access, class T>
__global__ void __launch_bounds__(256) swiglu_backward_rows(std::int64_t columns, T* x, T* dy) {
  const std::int64_t column = pack_of_thread() * kLanes<T>;
  if (column >= columns) return;
  const std::int64_t left = columns - column;
  const std::int64_t at = blockIdx.x * columns + column;
  T* const gates = x + at + blockIdx.x * columns;
  Lanes<T> gate = read<access>(gates, left);
  Lanes<T> value = read<access>(gates + columns, left);
  Lanes<T> output = read<access>(dy + at, left);
#pragma unroll
  for (int i = 0; i < kLanes<T>; ++i) {
    Formulas{}.swiglu_backward(gate.at[i], value.at[i], output.at[i]);
  }
  write<access>(output, dy + at, left);
  write<access>(value, gates + columns, left);
  write<access>(gate, gates, left);
}

}  // namespace

void swiglu_forward(cudaStream_t stream, const MatrixShape& s, View x, View y) {
  with_access(s.dtype, s.columns, {x, y}, [&]<class T, class A>(std::type_identity<T>, A) {
    launch("swiglu_forward", swiglu_rows<A::value, T>,
           row_grid(s.rows, div_ceil(s.columns, kLanes<T>)), stream, s.columns, pointer<T>(x),
           pointer<T>(y));
  });
}

void swiglu_backward(cudaStream_t stream, const MatrixShape& s, View x, View dy) {
  with_access(s.dtype, s.columns, {x, dy}, [&]<class T, class A>(std::type_identity<T>, A) {
    launch("swiglu_backward", swiglu_backward_rows<A::value, T>,
           row_grid(s.rows, div_ceil(s.columns, kLanes<T>)), stream, s.columns, pointer<T>(x),
           pointer<T>(dy));
  });
}

}  // namespace zero::cuda
