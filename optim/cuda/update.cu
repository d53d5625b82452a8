// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#include "device/cuda/index.h"
#include "device/cuda/number.cuh"
#include "optim/cuda/update.h"

namespace zero::cuda {
namespace {

#include "optim/update_rules.inc"

struct ScalarOps {
  __host__ __device__ constexpr float set(float value) const { return value; }
  __device__ float sqrt(float value) const { return __fsqrt_rn(value); }
};

constexpr int kElements = 4;  // of one access: 16 bytes of fp32
constexpr int kAccesses = 2;  // of one thread, whose loads are in flight together
constexpr std::int64_t kTile = std::int64_t{kThreads} * kElements * kAccesses;

using Values = Floats<kElements>;

/// Elements [at, at + kElements) in one access, 16 bytes wide if T is fp32; one by one if only
/// `left` remain or an array is not aligned.
template <class T, bool kWide>
__device__ __forceinline__ Values read(const void* from, std::int64_t at, int left) {
  const T* const first = static_cast<const T*>(from) + at;
  if constexpr (kWide) {
    return load<kElements>(first);
  } else {
    return load_first<kElements>(first, left);
  }
}

template <class T, bool kWide>
__device__ __forceinline__ void write(const Values& values, void* to, std::int64_t at, int left) {
  T* const first = static_cast<T*>(to) + at;
  if constexpr (kWide) {
    store(values, first);
  } else {
    store_first(values, first, left);
  }
}

template <bool kWide>
__device__ __forceinline__ Values read_gradient(const UpdateMemory& memory, std::int64_t at,
                                                int left) {
  if (memory.gradient_dtype == DType::fp32) return read<float, kWide>(memory.gradient, at, left);
  if (memory.gradient_dtype == DType::bf16) {
    return read<bfloat16, kWide>(memory.gradient, at, left);
  }
  return read<float16, kWide>(memory.gradient, at, left);
}

/// The data of one access: kElements elements of every array that a rule works on.
struct Access {
  std::int64_t at;
  int left;
  Values master;
  Values gradient;
  Values moment0;
  Values moment1;
};

template <bool kWide, int kMoments>
__device__ __forceinline__ void read_access(const UpdateMemory& memory, Access& access) {
  access.master = read<float, kWide>(memory.master, access.at, access.left);
  if constexpr (kMoments > 0) {
    access.moment0 = read<float, kWide>(memory.moment0, access.at, access.left);
  }
  if constexpr (kMoments > 1) {
    access.moment1 = read<float, kWide>(memory.moment1, access.at, access.left);
  }
  access.gradient = read_gradient<kWide>(memory, access.at, access.left);
}

template <bool kWide, int kMoments>
__device__ __forceinline__ void write_access(const UpdateMemory& memory, const Access& access) {
  write<float, kWide>(access.master, memory.master, access.at, access.left);
  if constexpr (kMoments > 0) {
    write<float, kWide>(access.moment0, memory.moment0, access.at, access.left);
  }
  if constexpr (kMoments > 1) {
    write<float, kWide>(access.moment1, memory.moment1, access.at, access.left);
  }
  if (memory.compute == nullptr) return;
  if (memory.compute_dtype == DType::bf16) {
    write<bfloat16, kWide>(access.master, memory.compute, access.at, access.left);
  } else {
    write<float16, kWide>(access.master, memory.compute, access.at, access.left);
  }
}

template <class Rule, bool kWide>
__device__ __forceinline__ void update_tile(const Rule& rule, const UpdateMemory& memory,
                                            std::int64_t count) {
  constexpr int kMoments = Rule::kMoments;
  Access accesses[kAccesses] = {};
#pragma unroll
  for (int i = 0; i < kAccesses; ++i) {
    const auto place = i * static_cast<std::int64_t>(kThreads) + threadIdx.x;
    accesses[i].at = blockIdx.x * kTile + place * kElements;
    accesses[i].left = static_cast<int>(
        max(std::int64_t{0}, min(count - accesses[i].at, std::int64_t{kElements})));
    read_access<kWide, kMoments>(memory, accesses[i]);
  }
#pragma unroll
  for (Access& access : accesses) {
#pragma unroll
    for (int i = 0; i < kElements; ++i) {
      rule(access.master.at[i], access.gradient.at[i], access.moment0.at[i], access.moment1.at[i]);
    }
    write_access<kWide, kMoments>(memory, access);
  }
}

template <class Rule>
__global__ void __launch_bounds__(kThreads)
    update(Rule rule, UpdateMemory memory, std::int64_t count, int aligned) {
  if (aligned != 0 && (blockIdx.x + std::int64_t{1}) * kTile <= count) {
    update_tile<Rule, true>(rule, memory, count);
  } else {
    update_tile<Rule, false>(rule, memory, count);
  }
}

/// Whether every array takes accesses of kElements elements.
bool is_aligned(const UpdateMemory& memory) {
  const bool gradient = memory.gradient_dtype == DType::fp32
                            ? is_wide<float, kElements>(memory.gradient)
                            : is_wide<bfloat16, kElements>(memory.gradient);
  return gradient && is_wide<float, kElements>(memory.master) &&
         is_wide<float, kElements>(memory.moment0) && is_wide<float, kElements>(memory.moment1) &&
         is_wide<bfloat16, kElements>(memory.compute);
}

template <class Rule>
void launch_update(const char* name, const Rule& rule, const UpdateMemory& memory,
                   std::int64_t count, cudaStream_t stream) {
  launch(name, update<Rule>, {dim3(static_cast<unsigned>(div_ceil(count, kTile)))}, stream, rule,
         memory, count, is_aligned(memory) ? 1 : 0);
}

}  // namespace

void update_adamw(const AdamConstants& constants, const UpdateMemory& memory, std::int64_t count,
                  cudaStream_t stream) {
  launch_update("adamw", AdamWRule<ScalarOps>{constants, {}}, memory, count, stream);
}

void update_adam(const AdamConstants& constants, const UpdateMemory& memory, std::int64_t count,
                 cudaStream_t stream) {
  launch_update("adam", AdamRule<ScalarOps>{constants, {}}, memory, count, stream);
}

void update_sgd(const SgdConstants& constants, const UpdateMemory& memory, std::int64_t count,
                cudaStream_t stream) {
  if (memory.moment0 != nullptr) {
    launch_update("sgd with momentum", MomentumRule<ScalarOps>{constants, {}}, memory, count,
                  stream);
  } else {
    launch_update("sgd", SgdRule<ScalarOps>{constants, {}}, memory, count, stream);
  }
}

}  // namespace zero::cuda
