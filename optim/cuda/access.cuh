// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include "device/cuda/number.cuh"
#include "optim/update.h"

/// A thread's accesses of N neighbouring elements of an update: as wide as load<N> and store<N>
/// are, which takes whole aligned arrays, or one by one, of which only `left` remain.
namespace zero::cuda {

/// The elements of a thread: [at, at + left) of the update; `left` is N if accesses are wide.
struct Place {
  std::int64_t at;
  int left;
};

template <int N>
__device__ __forceinline__ Place place_of(std::int64_t at, std::int64_t count) {
  return {at, static_cast<int>(max(std::int64_t{0}, min(count - at, std::int64_t{N})))};
}

template <class T, int N, bool kWide>
__device__ __forceinline__ Floats<N> read(const void* from, const Place& place) {
  const T* const first = static_cast<const T*>(from) + place.at;
  if constexpr (kWide) {
    return load<N>(first);
  } else {
    return load_first<N>(first, place.left);
  }
}

template <class T, bool kWide, int N>
__device__ __forceinline__ void write(const Floats<N>& values, void* to, const Place& place) {
  T* const first = static_cast<T*>(to) + place.at;
  if constexpr (kWide) {
    store(values, first);
  } else {
    store_first(values, first, place.left);
  }
}

template <int N, bool kWide>
__device__ __forceinline__ Floats<N> read_gradient(const UpdateMemory& memory, const Place& place) {
  if (memory.gradient_dtype == DType::fp32) return read<float, N, kWide>(memory.gradient, place);
  if (memory.gradient_dtype == DType::bf16) return read<bfloat16, N, kWide>(memory.gradient, place);
  return read<float16, N, kWide>(memory.gradient, place);
}

/// Writes the master values and their copy, if there is one.
template <bool kWide, int N>
__device__ __forceinline__ void write_master(const Floats<N>& values, const UpdateMemory& memory,
                                             const Place& place) {
  write<float, kWide>(values, memory.master, place);
  if (memory.compute == nullptr) return;
  if (memory.compute_dtype == DType::bf16) {
    write<bfloat16, kWide>(values, memory.compute, place);
  } else {
    write<float16, kWide>(values, memory.compute, place);
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
