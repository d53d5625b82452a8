// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

// CUDA C++ as plain C++: what kernels need when a .cu file is compiled by a host compiler with
// ZERO_CUDA_EMULATED (-x c++). The real CUDA headers, which leave __global__ and __device__ empty
// there, give the types. Arithmetic is the host's, rounded the same way; contraction is off in both
// builds.

#include <cuda_runtime_api.h>
#include <vector_functions.h>

#include <bit>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <functional>
#include <source_location>

/// Shared by the threads of a block: a block runs on one host thread, and blocks one after another.
#define ZERO_SHARED static thread_local

extern constinit thread_local uint3 threadIdx;
extern constinit thread_local uint3 blockIdx;
extern constinit thread_local dim3 blockDim;
extern constinit thread_local dim3 gridDim;
inline constexpr int warpSize = 32;
#define __launch_bounds__(...)

namespace zero::cuda::emulated {

struct Shape {
  const char* name;
  dim3 blocks;
  unsigned threads;
  unsigned shared_bytes;
};

/// Queues a kernel: `thread` is what each of its threads calls.
cudaError_t launch(const Shape& shape, cudaStream_t stream, std::function<void()> thread);
/// Dynamic shared memory of the running block.
void* shared_memory();

/// The calling thread waits until all of its block have come to the same `where`.
void sync_block(std::source_location where);
/// Exchanges one value with the other 31 threads of the warp; returns what `lane` gave.
std::uint64_t exchange(std::uint64_t value, unsigned mask, unsigned lane,
                       std::source_location where);
unsigned lane();

template <class T>
T shuffle(T value, unsigned mask, unsigned from, std::source_location where) {
  static_assert(sizeof(T) <= sizeof(std::uint64_t));
  std::uint64_t bits = 0;
  std::memcpy(&bits, &value, sizeof value);
  bits = exchange(bits, mask, from, where);
  std::memcpy(&value, &bits, sizeof value);
  return value;
}

}  // namespace zero::cuda::emulated

inline void __syncthreads(std::source_location where = std::source_location::current()) {
  zero::cuda::emulated::sync_block(where);
}

inline void __syncwarp(unsigned mask = ~0U,
                       std::source_location where = std::source_location::current()) {
  zero::cuda::emulated::exchange(0, mask, 0, where);
}

template <class T>
T __shfl_sync(unsigned mask, T value, int lane,
              std::source_location where = std::source_location::current()) {
  return zero::cuda::emulated::shuffle(value, mask, static_cast<unsigned>(lane) % 32, where);
}

template <class T>
T __shfl_xor_sync(unsigned mask, T value, int bits,
                  std::source_location where = std::source_location::current()) {
  const unsigned from = zero::cuda::emulated::lane() ^ static_cast<unsigned>(bits);
  return zero::cuda::emulated::shuffle(value, mask, from, where);
}

template <class T>
T __shfl_down_sync(unsigned mask, T value, unsigned by,
                   std::source_location where = std::source_location::current()) {
  const unsigned from = zero::cuda::emulated::lane() + by;
  return zero::cuda::emulated::shuffle(value, mask, from < 32 ? from : from - by, where);
}

template <class T>
T __shfl_up_sync(unsigned mask, T value, unsigned by,
                 std::source_location where = std::source_location::current()) {
  const unsigned lane = zero::cuda::emulated::lane();
  return zero::cuda::emulated::shuffle(value, mask, lane >= by ? lane - by : lane, where);
}

/// Integers only: the order of additions must not show.
template <class T>
T atomicAdd(T* at, T value) {
  static_assert(std::is_integral_v<T>);
  return __atomic_fetch_add(at, value, __ATOMIC_RELAXED);
}

inline void __threadfence() { __atomic_thread_fence(__ATOMIC_SEQ_CST); }

template <class T>
T __ldg(const T* at) {
  return *at;
}
template <class T>
T __ldcs(const T* at) {
  return *at;
}
template <class T>
void __stcs(T* at, T value) {
  *at = value;
}

inline float __uint_as_float(unsigned bits) { return std::bit_cast<float>(bits); }
inline unsigned __float_as_uint(float value) { return std::bit_cast<unsigned>(value); }
inline float __int_as_float(int bits) { return std::bit_cast<float>(bits); }
inline int __float_as_int(float value) { return std::bit_cast<int>(value); }
inline double __longlong_as_double(long long bits) { return std::bit_cast<double>(bits); }
inline long long __double_as_longlong(double value) { return std::bit_cast<long long>(value); }

inline float __fadd_rn(float a, float b) { return a + b; }
inline float __fsub_rn(float a, float b) { return a - b; }
inline float __fmul_rn(float a, float b) { return a * b; }
inline float __fdiv_rn(float a, float b) { return a / b; }
inline float __fsqrt_rn(float a) { return std::sqrt(a); }
inline float __frcp_rn(float a) { return 1.0F / a; }
inline float __fmaf_rn(float a, float b, float c) { return std::fma(a, b, c); }
inline double __dadd_rn(double a, double b) { return a + b; }
inline double __dmul_rn(double a, double b) { return a * b; }
inline double __fma_rn(double a, double b, double c) { return std::fma(a, b, c); }
/// Correctly rounded here; within 2 ulp on a GPU.
inline float rsqrtf(float a) { return static_cast<float>(1.0 / std::sqrt(static_cast<double>(a))); }

inline int __popc(unsigned bits) { return std::popcount(bits); }
inline int __clz(int bits) { return std::countl_zero(static_cast<unsigned>(bits)); }

// CUDA has these for arguments of one type, and more mixtures than are needed.
template <class T>
constexpr T min(T a, T b) {
  return b < a ? b : a;
}
template <class T>
constexpr T max(T a, T b) {
  return a < b ? b : a;
}
