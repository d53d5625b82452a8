// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <bit>
#include <cmath>
#include <cstdint>

#include "device/cuda/number.cuh"

namespace zero::cuda {

#include "ops/row_formulas.inc"

/// A lane of RowFormulas: one float. With -fmad=false a product and a sum round separately.
struct FloatLane {
  using Lane = float;
  __host__ __device__ __forceinline__ float set(float value) const { return value; }
  __host__ __device__ __forceinline__ float mul_add(float a, float b, float c) const {
    return fmaf(a, b, c);
  }
  __host__ __device__ __forceinline__ float neg_mul_add(float a, float b, float c) const {
    return fmaf(-a, b, c);
  }
  __host__ __device__ __forceinline__ float shift_to_exponent(float a) const {
    return std::bit_cast<float>(std::bit_cast<std::uint32_t>(a) << 23);
  }
  __host__ __device__ __forceinline__ float zero_below(float a, float limit, float value) const {
    return a < limit ? 0.0F : value;
  }
  __host__ __device__ __forceinline__ float at_most(float a, float limit) const {
    return a > limit ? limit : a;
  }
  __host__ __device__ __forceinline__ float inverse(float a) const { return 1.0F / a; }
};

using Formulas = RowFormulas<FloatLane>;

}  // namespace zero::cuda
