// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0

// Sums and GELU of vectors of any length, and gated units.
#include "ops/cuda/formulas.cuh"
#include "ops/cuda/lanes.cuh"
#include "ops/cuda/row_kernels.h"

namespace zero::cuda {
namespace {

constexpr int kThreads = 256;
constexpr int kPacks = 2;  // per thread, all read before any is computed

struct Sum {
  __device__ __forceinline__ float operator()(float a, float b) const { return a + b; }
};

struct Scale {
  float factor;
  __device__ __forceinline__ float operator()(float a) const { return a * factor; }
};

struct Gelu {
  __device__ __forceinline__ float operator()(float a) const { return Formulas{}.gelu(a); }
};

/// y = f(x...), each of `count` elements; y may be one of x. A block has kThreads * kPacks packs.
template <Access access, class F, class T, class... X>
__device__ __forceinline__ void map_packs(F f, std::int64_t begin, std::int64_t count, T* y,
                                          const X*... x) {
  constexpr std::int64_t kStep = kThreads * kLanes<T>;
  const auto mapped = [&](const Lanes<X>&... from) {
    Lanes<T> to;
#pragma unroll
    for (int i = 0; i < kLanes<T>; ++i) to.at[i] = f(from.at[i]...);
    return to;
  };
  const auto left = [&](int k) { return count - begin - k * kStep; };
  Lanes<T> results[kPacks];
#pragma unroll
  for (int k = 0; k < kPacks; ++k) {
    results[k] = mapped(read<access>(x + begin + k * kStep, left(k))...);
  }
#pragma unroll
  for (int k = 0; k < kPacks; ++k) write<access>(results[k], y + begin + k * kStep, left(k));
}

template <Access access, class F, class T, class... X>
__global__ void __launch_bounds__(kThreads)
    map_elements(F f, std::int64_t count, T* y, const X*... x) {
  constexpr std::int64_t kBlock = std::int64_t{kThreads} * kPacks * kLanes<T>;
  const std::int64_t first = blockIdx.x * kBlock;
  const std::int64_t begin = first + static_cast<std::int64_t>(threadIdx.x) * kLanes<T>;
  if (access == Access::whole && first + kBlock <= count) {
    map_packs<Access::whole>(f, begin, count, y, x...);
  } else {
    map_packs<Access::any>(f, begin, count, y, x...);
  }
}

template <class F, class... X>
void map(const char* name, cudaStream_t stream, F f, View y, X... x) {
  // 16 columns are whole packs: the access depends on alignment only; the last block checks the
  // end.
  with_access(y.dtype(), 16, {y, x...}, [&]<class T, class A>(std::type_identity<T>, A) {
    const std::int64_t packs = div_ceil(y.count(), kLanes<T>);
    launch(
        name, map_elements<A::value, F, T, std::conditional_t<true, T, X>...>,
        {.blocks = dim3(narrow<unsigned>(div_ceil(packs, kThreads * kPacks))), .threads = kThreads},
        stream, f, y.count(), pointer<T>(y), pointer<T>(x)...);
  });
}

template <class T>
struct GeluRows {
  std::int64_t rows;
  std::int64_t columns;
  const T* x;
  T* dy;
  T* y;             // null: not written
  float* partials;  // (chunks, columns)
};

/// The gradients of kRowChunk rows, summed before rounding; on a row_grid of chunks.
template <Access access, class T>
__global__ void __launch_bounds__(128) gelu_backward_rows(GeluRows<T> o) {
  const std::int64_t column = pack_of_thread() * kLanes<T>;
  if (column >= o.columns) return;
  const std::int64_t left = o.columns - column;
  const std::int64_t begin = static_cast<std::int64_t>(blockIdx.x) * Ops::kRowChunk;
  const std::int64_t end = begin + Ops::kRowChunk < o.rows ? begin + Ops::kRowChunk : o.rows;
  Lanes<T> dbias{};
#pragma unroll 2
  for (std::int64_t row = begin; row < end; ++row) {
    const std::int64_t at = row * o.columns + column;
    const Lanes<T> x = read<access>(o.x + at, left);
    Lanes<T> dy = read<access>(o.dy + at, left);
    Lanes<T> y;
#pragma unroll
    for (int i = 0; i < kLanes<T>; ++i) {
      float dx = 0;
      Formulas{}.gelu_backward(x.at[i], dy.at[i], y.at[i], dx);
      dy.at[i] = dx;
      dbias.at[i] += dx;
    }
    if (o.y != nullptr) write<access>(y, o.y + at, left);
    write<access>(dy, o.dy + at, left);
  }
  write<access>(dbias, o.partials + blockIdx.x * o.columns + column, left);
}

/// On a row_grid.
template <Access access, class T>
__global__ void __launch_bounds__(256)
    add_bias_rows(std::int64_t columns, const T* bias, float* y) {
  const std::int64_t column = pack_of_thread() * kLanes<T>;
  if (column >= columns) return;
  const std::int64_t left = columns - column;
  float* const at = y + blockIdx.x * columns + column;
  auto sums = read_lanes<access, kLanes<T>>(at, left);
  const Lanes<T> more = read<access>(bias + column, left);
#pragma unroll
  for (int i = 0; i < kLanes<T>; ++i) sums.at[i] += more.at[i];
  write<access>(sums, at, left);
}

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

void add(cudaStream_t stream, View x, View delta, View sum) {
  map("add", stream, Sum{}, sum, x, delta);
}

void scale(cudaStream_t stream, View x, float factor) { map("scale", stream, Scale{factor}, x, x); }

void gelu_forward(cudaStream_t stream, View x, View y) {
  map("gelu_forward", stream, Gelu{}, y, x);
}

void gelu_backward(cudaStream_t stream, const MatrixShape& s, const GeluBackward& o) {
  const std::int64_t chunks = div_ceil(s.rows, Ops::kRowChunk);
  with_access(s.dtype, s.columns, {o.x, o.dy, o.y.empty() ? o.dy : o.y},
              [&]<class T, class A>(std::type_identity<T>, A) {
                launch("gelu_backward", gelu_backward_rows<A::value, T>,
                       row_grid(chunks, div_ceil(s.columns, kLanes<T>), 128), stream,
                       GeluRows<T>{s.rows, s.columns, pointer<T>(o.x), pointer<T>(o.dy),
                                   o.y.empty() ? nullptr : pointer<T>(o.y), o.partials});
              });
  fold_partials(stream, chunks, o.partials, o.dbias, View());
}

void add_bias(cudaStream_t stream, const MatrixShape& s, View bias, View y) {
  with_access(s.dtype, s.columns, {bias, y}, [&]<class T, class A>(std::type_identity<T>, A) {
    launch("add_bias", add_bias_rows<A::value, T>, row_grid(s.rows, div_ceil(s.columns, kLanes<T>)),
           stream, s.columns, pointer<T>(bias), pointer<float>(y));
  });
}

void gated_forward(cudaStream_t stream, const MatrixShape& s, Gate gate, View x, View y) {
  (gate == Gate::silu ? forward<Gate::silu> : forward<Gate::gelu>)(stream, s, x, y);
}

void gated_backward(cudaStream_t stream, const MatrixShape& s, Gate gate, View x, View dy) {
  (gate == Gate::silu ? backward<Gate::silu> : backward<Gate::gelu>)(stream, s, x, dy);
}

}  // namespace zero::cuda
