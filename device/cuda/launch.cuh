// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cuda_runtime_api.h>

#include <array>
#include <tuple>

#include "device/cuda/check.h"

#ifdef ZERO_CUDA_EMULATED
#include <emulated_cuda.h>  // kernels as C++ on the CPU, for tests: tests/cuda/emulator
#else
/// Declares a static array that the threads of a block share: `ZERO_SHARED float tile[32][33];`.
/// The only macro, because the emulator must replace it.
#define ZERO_SHARED __shared__
#endif

namespace zero::cuda {

/// Threads of one launch. `threads` is a multiple of 32: shuffles are over whole warps.
struct Grid {
  dim3 blocks{1};
  unsigned threads = 256;
  unsigned shared_bytes = 0;  ///< dynamic shared memory of a block
};

#ifdef ZERO_CUDA_EMULATED

/// The block's dynamic shared memory, aligned to 16 bytes.
template <class T>
T* shared() {
  return static_cast<T*>(emulated::shared_memory());
}

template <class... P>
cudaError_t start(const char* name, void (*kernel)(P...), const Grid& grid, cudaStream_t stream,
                  const std::tuple<P...>& values) {
  return emulated::launch({name, grid.blocks, grid.threads, grid.shared_bytes}, stream,
                          [kernel, values] { std::apply(kernel, values); });
}

#else

template <class T>
__device__ T* shared() {
  extern __shared__ __align__(16) unsigned char zero_cuda_shared_bytes[];
  return reinterpret_cast<T*>(zero_cuda_shared_bytes);
}

template <class... P>
cudaError_t start(const char* /*name*/, void (*kernel)(P...), const Grid& grid, cudaStream_t stream,
                  std::tuple<P...>& values) {
  constexpr unsigned kUnasked = 48U << 10;  // more dynamic shared memory needs an attribute
  const void* const function = reinterpret_cast<const void*>(kernel);
  if (grid.shared_bytes > kUnasked) {
    const cudaError_t status = cudaFuncSetAttribute(
        function, cudaFuncAttributeMaxDynamicSharedMemorySize, static_cast<int>(grid.shared_bytes));
    if (status != cudaSuccess) return status;
  }
  return std::apply(
      [&](P&... each) {
        std::array<void*, sizeof...(P)> pointers{
            const_cast<void*>(static_cast<const void*>(&each))...};
        return cudaLaunchKernel(function, grid.blocks, dim3(grid.threads), pointers.data(),
                                grid.shared_bytes, stream);
      },
      values);
}

#endif

/// Launches `kernel(arguments...)` on `stream`; the only launch site. Arguments are converted to
/// the kernel's parameters. A grid without blocks launches nothing. Throws zero::Error, with
/// `name`, if the launch fails.
template <class... P, class... A>
void launch(const char* name, void (*kernel)(P...), const Grid& grid, cudaStream_t stream,
            const A&... arguments) {
  static_assert(sizeof...(P) == sizeof...(A));
  if (grid.blocks.x == 0 || grid.blocks.y == 0 || grid.blocks.z == 0) return;
  std::tuple<P...> values{static_cast<P>(arguments)...};
  check(start(name, kernel, grid, stream, values), name);
}

}  // namespace zero::cuda
