// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#include "model/cuda/formulas.cuh"
#include "model/cuda/lanes.cuh"
#include "model/cuda/row_kernels.h"

namespace zero::cuda {
namespace {

/// x (rows, 2 columns) to y (rows, columns); on a row_grid.
template <Gate gate, Access access, class T>
__global__ void __launch_bounds__(256) gated_rows(std::int64_t columns, const T* x, T* y) {
  const std::int64_t column = pack_of_thread() * kLanes<T>;
  if (column >= columns) return;
  const std::int64_t left = columns - column;
  const std::int64_t at = blockIdx.x * columns + column;
  const T* const gates = x + at + blockIdx.x * columns;
  const Lanes<T> open = read<access>(gates, left);
  const Lanes<T> value = read<access>(gates + columns, left);
  Lanes<T> output;
#pragma unroll
  for (int i = 0; i < kLanes<T>; ++i) {
    output.at[i] = gate == Gate::silu ? Formulas{}.swiglu(open.at[i], value.at[i])
                                      : Formulas{}.geglu(open.at[i], value.at[i]);
  }
  write<access>(output, y + at, left);
}

/// Overwrites x with its gradient and dy with y.
template <Gate gate, Access access, class T>
__global__ void __launch_bounds__(256) gated_backward_rows(std::int64_t columns, T* x, T* dy) {
  const std::int64_t column = pack_of_thread() * kLanes<T>;
  if (column >= columns) return;
  const std::int64_t left = columns - column;
  const std::int64_t at = blockIdx.x * columns + column;
  T* const gates = x + at + blockIdx.x * columns;
  Lanes<T> open = read<access>(gates, left);
  Lanes<T> value = read<access>(gates + columns, left);
  Lanes<T> output = read<access>(dy + at, left);
#pragma unroll
  for (int i = 0; i < kLanes<T>; ++i) {
    if constexpr (gate == Gate::silu) {
      Formulas{}.swiglu_backward(open.at[i], value.at[i], output.at[i]);
    } else {
      Formulas{}.geglu_backward(open.at[i], value.at[i], output.at[i]);
    }
  }
  write<access>(output, dy + at, left);
  write<access>(value, gates + columns, left);
  write<access>(open, gates, left);
}

template <Gate gate>
void forward(cudaStream_t stream, const MatrixShape& s, View x, View y) {
  with_access(s.dtype, s.columns, {x, y}, [&]<class T, class A>(std::type_identity<T>, A) {
    launch("gated_forward", gated_rows<gate, A::value, T>,
           row_grid(s.rows, div_ceil(s.columns, kLanes<T>)), stream, s.columns, pointer<T>(x),
           pointer<T>(y));
  });
}

template <Gate gate>
void backward(cudaStream_t stream, const MatrixShape& s, View x, View dy) {
  with_access(s.dtype, s.columns, {x, dy}, [&]<class T, class A>(std::type_identity<T>, A) {
    launch("gated_backward", gated_backward_rows<gate, A::value, T>,
           row_grid(s.rows, div_ceil(s.columns, kLanes<T>)), stream, s.columns, pointer<T>(x),
           pointer<T>(dy));
  });
}

}  // namespace

void gated_forward(cudaStream_t stream, const MatrixShape& s, Gate gate, View x, View y) {
  (gate == Gate::silu ? forward<Gate::silu> : forward<Gate::gelu>)(stream, s, x, y);
}

void gated_backward(cudaStream_t stream, const MatrixShape& s, Gate gate, View x, View dy) {
  (gate == Gate::silu ? backward<Gate::silu> : backward<Gate::gelu>)(stream, s, x, dy);
}

}  // namespace zero::cuda
