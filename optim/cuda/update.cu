// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#include "device/cuda/index.h"
#include "optim/cuda/access.cuh"
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

/// The data of one access: kElements elements of every array that a rule works on.
struct LaneAccess {
  ThreadElements own;
  Values master;
  Values gradient;
  Values moment0;
  Values moment1;
};

template <bool kWide, int kMoments>
__device__ __forceinline__ void read_access(const UpdateMemory& memory, LaneAccess& access) {
  access.master = read<float, kElements, kWide>(memory.master, access.own);
  if constexpr (kMoments > 0) {
    access.moment0 = read<float, kElements, kWide>(memory.moment0, access.own);
  }
  if constexpr (kMoments > 1) {
    access.moment1 = read<float, kElements, kWide>(memory.moment1, access.own);
  }
  access.gradient = read_gradient<kElements, kWide>(memory, access.own);
}

template <bool kWide, int kMoments>
__device__ __forceinline__ void write_access(const UpdateMemory& memory, const LaneAccess& access) {
  if constexpr (kMoments > 0) write<float, kWide>(access.moment0, memory.moment0, access.own);
  if constexpr (kMoments > 1) write<float, kWide>(access.moment1, memory.moment1, access.own);
  write_master<kWide>(access.master, memory, access.own);
}

template <class Rule, bool kWide>
__device__ __forceinline__ void update_tile(const Rule& rule, const UpdateMemory& memory,
                                            std::int64_t count) {
  constexpr int kMoments = Rule::kMoments;
  LaneAccess accesses[kAccesses] = {};
#pragma unroll
  for (int i = 0; i < kAccesses; ++i) {
    const auto thread = i * static_cast<std::int64_t>(kThreads) + threadIdx.x;
    accesses[i].own = thread_elements<kElements>(blockIdx.x * kTile + thread * kElements, count);
    read_access<kWide, kMoments>(memory, accesses[i]);
  }
#pragma unroll
  for (LaneAccess& access : accesses) {
#pragma unroll
    for (int i = 0; i < kElements; ++i) {
      apply(rule, access.master.at[i], access.gradient.at[i], access.moment0.at[i],
            access.moment1.at[i]);
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

template <class Rule>
void launch_update(const char* name, const Rule& rule, const UpdateMemory& memory,
                   std::int64_t count, cudaStream_t stream) {
  launch(name, update<Rule>, {dim3(static_cast<unsigned>(div_ceil(count, kTile)))}, stream, rule,
         memory, count, is_aligned<kElements>(memory) ? 1 : 0);
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
