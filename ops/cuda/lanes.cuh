// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstdint>
#include <initializer_list>
#include <type_traits>

#include "base/checked_math.h"
#include "device/cuda/launch.cuh"
#include "device/cuda/number.cuh"
#include "device/view.h"

/// How the layers' kernels partition rows over threads. A thread owns packs of 16 bytes' worth of
/// elements, the same ones for any alignment of the views: the order of sums depends on shapes
/// only.
namespace zero::cuda {

/// Elements of T in a pack.
template <class T>
inline constexpr int kLanes = 16 / static_cast<int>(sizeof(T));

template <class T>
using Lanes = Floats<kLanes<T>>;

/// How a kernel accesses its packs. whole: every pack is full and aligned to 16 bytes.
enum class Access : std::uint8_t { whole, any };

/// N elements at `from`. The first `left` exist; the others are 0.
template <Access access, int N, class T>
__device__ __forceinline__ Floats<N> read_lanes(const T* from, std::int64_t left) {
  if constexpr (access == Access::whole) {
    return load<N>(from);
  } else {
    return load_first<N>(from, static_cast<int>(left < N ? left : N));
  }
}
/// The same, a pack of T.
template <Access access, class T>
__device__ __forceinline__ Lanes<T> read(const T* from, std::int64_t left) {
  return read_lanes<access, kLanes<T>>(from, left);
}

/// The same, as it lies in memory.
template <Access access, class T>
__device__ __forceinline__ Packed<kLanes<T>, T> read_packed(const T* from, std::int64_t left) {
  if constexpr (access == Access::whole) {
    return load_packed<kLanes<T>>(from);
  } else {
    return load_packed_first<kLanes<T>>(from,
                                        static_cast<int>(left < kLanes<T> ? left : kLanes<T>));
  }
}

/// Rounds the first `left` of the lanes to `to`.
template <Access access, int N, class T>
__device__ __forceinline__ void write(const Floats<N>& values, T* to, std::int64_t left) {
  if constexpr (access == Access::whole) {
    store<N>(values, to);
  } else {
    store_first<N>(values, to, static_cast<int>(left < N ? left : N));
  }
}

/// The sum over the 32 lanes of a warp, returned in all; the same bits, because addition commutes.
__device__ __forceinline__ float warp_sum(float value) {
#pragma unroll
  for (int other = 16; other > 0; other /= 2) value += __shfl_xor_sync(~0U, value, other);
  return value;
}

__device__ __forceinline__ float warp_max(float value) {
#pragma unroll
  for (int other = 16; other > 0; other /= 2) {
    value = fmaxf(value, __shfl_xor_sync(~0U, value, other));
  }
  return value;
}

/// The sum over the threads of a block, returned in all: a tree over each warp, then one over the
/// warps. `place`: 32 floats of shared memory without any other use in the kernel.
__device__ __forceinline__ float block_sum(float value, float* place) {
  const unsigned lane = threadIdx.x % 32;
  value = warp_sum(value);
  if (lane == 0) place[threadIdx.x / 32] = value;
  __syncthreads();
  return warp_sum(lane < blockDim.x / 32 ? place[lane] : 0.0F);
}

/// The largest of a block's values; `lowest` is below all of them.
__device__ __forceinline__ float block_max(float value, float lowest, float* place) {
  const unsigned lane = threadIdx.x % 32;
  value = warp_max(value);
  if (lane == 0) place[threadIdx.x / 32] = value;
  __syncthreads();
  return warp_max(lane < blockDim.x / 32 ? place[lane] : lowest);
}

/// Two block_sums behind one barrier; `place`: 64 floats.
__device__ __forceinline__ float2 block_sums(float a, float b, float* place) {
  const unsigned lane = threadIdx.x % 32;
  a = warp_sum(a);
  b = warp_sum(b);
  if (lane == 0) {
    place[threadIdx.x / 32] = a;
    place[32 + threadIdx.x / 32] = b;
  }
  __syncthreads();
  const bool used = lane < blockDim.x / 32;
  return {warp_sum(used ? place[lane] : 0.0F), warp_sum(used ? place[32 + lane] : 0.0F)};
}

/// Bytes of shared memory for `calls` calls of block_sum or block_max.
constexpr unsigned block_bytes(int calls) { return static_cast<unsigned>(calls) * 32U * 4U; }

/// Threads for `packs` packs: whole warps, at most `most`, with packs spread evenly.
inline unsigned threads_for(std::int64_t packs, std::int64_t most) {
  const std::int64_t turns = std::max<std::int64_t>(1, div_ceil(packs, most));
  return static_cast<unsigned>(std::max<std::int64_t>(32, round_up(div_ceil(packs, turns), 32)));
}

/// One thread for each of `packs` packs of each of `rows` rows: blockIdx.x is the row, blockIdx.y
/// and the thread index give the pack.
inline Grid row_grid(std::int64_t rows, std::int64_t packs, std::int64_t most = 256) {
  const unsigned threads = threads_for(packs, most);
  return {.blocks = dim3(narrow<unsigned>(rows), narrow<unsigned>(div_ceil(packs, threads))),
          .threads = threads};
}

/// The thread's pack on a row_grid.
__device__ __forceinline__ std::int64_t pack_of_thread() {
  return static_cast<std::int64_t>(blockIdx.y) * blockDim.x + threadIdx.x;
}

/// Calls body(type, access): the element type of `dtype`, fp32, bf16 or fp16, and Access::whole
/// if rows of `columns` elements consist of whole packs at multiples of 16 bytes in each of the
/// views.
template <class Body>
void with_access(DType dtype, std::int64_t columns, std::initializer_list<View> views,
                 const Body& body) {
  const auto typed = [&]<class T>(std::type_identity<T> type) {
    const bool whole =
        columns % kLanes<T> == 0 && std::all_of(views.begin(), views.end(), [](const View& view) {
          return reinterpret_cast<std::uintptr_t>(view.data()) % 16 == 0;
        });
    if (whole) {
      body(type, std::integral_constant<Access, Access::whole>{});
    } else {
      body(type, std::integral_constant<Access, Access::any>{});
    }
  };
  if (dtype == DType::bf16) {
    typed(std::type_identity<bfloat16>{});
  } else if (dtype == DType::fp16) {
    typed(std::type_identity<float16>{});
  } else {
    typed(std::type_identity<float>{});
  }
}

template <class T>
T* pointer(const View& view) {
  return static_cast<T*>(view.data());
}

}  // namespace zero::cuda
