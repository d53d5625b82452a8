// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <type_traits>

#include "device/cuda/launch.cuh"
#include "device/cuda/number.cuh"
#include "ops/ops.h"

namespace zero::cuda {

/// fp32 statistics per row: mean (layer norm) and reciprocal deviation.
template <NormKind kind>
inline constexpr int kStatistics = kind == NormKind::layer ? 2 : 1;

template <NormKind kind>
struct Statistics {
  float mean;
  float scale;

  __device__ __forceinline__ static Statistics of_row(const float* statistics, std::int64_t row) {
    const float* at = statistics + row * kStatistics<kind>;
    if constexpr (kind == NormKind::layer) return {at[0], at[1]};
    return {0.0F, at[0]};
  }
  __device__ __forceinline__ void keep(float* statistics, std::int64_t row) const {
    float* at = statistics + row * kStatistics<kind>;
    if constexpr (kind == NormKind::layer) at[0] = mean;
    at[kStatistics<kind> - 1] = scale;
  }
  __device__ __forceinline__ float normed(float x) const {
    return (kind == NormKind::layer ? x - mean : x) * scale;
  }
};

/// The weights of a norm as they are stored become those that it multiplies by.
template <NormKind kind, int N>
__device__ __forceinline__ void complete_weight(Floats<N>& weight) {
  if constexpr (kind == NormKind::rms_plus_one) {
#pragma unroll
    for (int i = 0; i < N; ++i) weight.at[i] += 1.0F;
  }
}

/// Calls body(std::integral_constant<NormKind, kind>()).
template <class Body>
void with_kind(NormKind kind, const Body& body) {
  if (kind == NormKind::layer) {
    body(std::integral_constant<NormKind, NormKind::layer>{});
  } else if (kind == NormKind::rms) {
    body(std::integral_constant<NormKind, NormKind::rms>{});
  } else {
    body(std::integral_constant<NormKind, NormKind::rms_plus_one>{});
  }
}

}  // namespace zero::cuda
