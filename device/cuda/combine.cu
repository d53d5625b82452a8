// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#include <bit>
#include <type_traits>

#include "device/cuda/index.h"
#include "device/cuda/launch.cuh"
#include "device/cuda/primitives.h"

namespace zero::cuda {
namespace {

/// Pending sums of 2^level inputs, until their siblings are complete.
constexpr int kLevels = std::bit_width(kMostInputs);

struct Inputs {
  const void* at[kMostInputs];
  int count;
};

template <class T>
__device__ T combined(ReduceOp op, T a, T b) {
  switch (op) {
    case ReduceOp::max:
      return (a != a || a > b) ? a : b;
    case ReduceOp::min:
      return (a != a || a < b) ? a : b;
    default:
      break;
  }
  if constexpr (std::is_integral_v<T>) {
    using Unsigned = std::make_unsigned_t<T>;
    return static_cast<T>(static_cast<Unsigned>(a) + static_cast<Unsigned>(b));
  } else {
    return a + b;
  }
}

/// One element per thread: the values are few, such as losses and counts.
template <class T>
__global__ void combine_elements(const __grid_constant__ Inputs inputs, ReduceOp op, T* to,
                                 std::int64_t count) {
  const std::int64_t at = static_cast<std::int64_t>(blockIdx.x) * kThreads + threadIdx.x;
  if (at >= count) return;
  T levels[kLevels] = {};
  for (int i = 0; i < inputs.count; ++i) {
    T value = static_cast<const T*>(inputs.at[i])[at];
    bool placed = false;
#pragma unroll
    for (int level = 0; level < kLevels; ++level) {
      if (placed) continue;
      if ((i >> level & 1) != 0) {
        value = combined(op, levels[level], value);
      } else {
        levels[level] = value;
        placed = true;
      }
    }
  }
  T value = {};
  bool begun = false;
#pragma unroll
  for (int level = 0; level < kLevels; ++level) {
    if ((inputs.count >> level & 1) == 0) continue;
    value = begun ? combined(op, levels[level], value) : levels[level];
    begun = true;
  }
  to[at] = value;
}

template <class T>
void launch_combine(const Inputs& inputs, ReduceOp op, const View& to, cudaStream_t stream) {
  launch("combine", combine_elements<T>, {dim3(blocks_for(to.count()))}, stream, inputs, op,
         static_cast<T*>(to.data()), to.count());
}

}  // namespace

void combine(std::span<const View> inputs, ReduceOp op, const View& to, cudaStream_t stream) {
  Inputs addresses{};
  for (const View& input : inputs) addresses.at[addresses.count++] = input.data();
  switch (to.dtype()) {
    case DType::fp32:
      return launch_combine<float>(addresses, op, to, stream);
    case DType::fp64:
      return launch_combine<double>(addresses, op, to, stream);
    case DType::i32:
      return launch_combine<std::int32_t>(addresses, op, to, stream);
    default:
      return launch_combine<std::int64_t>(addresses, op, to, stream);
  }
}

}  // namespace zero::cuda
