// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include "device/cuda/launch.cuh"
#include "model/ops.h"

namespace zero::cuda {

/// fp32 figures per row: mean (layer norm) and reciprocal deviation.
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

}  // namespace zero::cuda
