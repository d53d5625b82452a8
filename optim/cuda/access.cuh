// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include "device/cuda/number.cuh"
#include "optim/update.h"

/// A thread's accesses of N neighbouring elements of an update: wide (load<N>, store<N>), which
/// needs aligned arrays and all N elements, or one by one.
namespace zero::cuda {

/// The elements of a thread: [at, at + left) of the update; `left` is N if accesses are wide.
struct ThreadElements {
  std::int64_t at;
  int left;
};

template <int N>
__device__ __forceinline__ ThreadElements thread_elements(std::int64_t at, std::int64_t count) {
  return {at, static_cast<int>(max(std::int64_t{0}, min(count - at, std::int64_t{N})))};
}

template <class T, int N, bool kWide>
__device__ __forceinline__ Floats<N> read(const void* from, const ThreadElements& own) {
  const T* const first = static_cast<const T*>(from) + own.at;
  if constexpr (kWide) {
    return load<N>(first);
  } else {
    return load_first<N>(first, own.left);
  }
}

template <class T, bool kWide, int N>
__device__ __forceinline__ void write(const Floats<N>& values, void* to,
                                      const ThreadElements& own) {
  T* const first = static_cast<T*>(to) + own.at;
  if constexpr (kWide) {
    store(values, first);
  } else {
    store_first(values, first, own.left);
  }
}

template <int N, bool kWide>
__device__ __forceinline__ Floats<N> read_gradient(const UpdateMemory& memory,
                                                   const ThreadElements& own) {
  if (memory.gradient_dtype == DType::fp32) return read<float, N, kWide>(memory.gradient, own);
  if (memory.gradient_dtype == DType::bf16) return read<bfloat16, N, kWide>(memory.gradient, own);
  return read<float16, N, kWide>(memory.gradient, own);
}

/// Writes the master values and their copy, if there is one.
template <bool kWide, int N>
__device__ __forceinline__ void write_master(const Floats<N>& values, const UpdateMemory& memory,
                                             const ThreadElements& own) {
  write<float, kWide>(values, memory.master, own);
  if (memory.compute == nullptr) return;
  if (memory.compute_dtype == DType::bf16) {
    write<bfloat16, kWide>(values, memory.compute, own);
  } else {
    write<float16, kWide>(values, memory.compute, own);
  }
}

/// Whether every array of `memory` takes wide accesses of N elements.
template <int N>
bool is_aligned(const UpdateMemory& memory) {
  const bool gradient = memory.gradient_dtype == DType::fp32
                            ? is_wide<float, N>(memory.gradient)
                            : is_wide<bfloat16, N>(memory.gradient);
  return gradient && is_wide<float, N>(memory.master) && is_wide<float, N>(memory.moment0) &&
         is_wide<float, N>(memory.moment1) && is_wide<bfloat16, N>(memory.compute);
}

}  // namespace zero::cuda
