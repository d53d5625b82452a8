// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <array>

#include "ops/cuda/code_places.h"
#include "ops/cuda/lanes.cuh"

/// Values of codes, in registers: a level times its scale, rounded once to fp32, as on the CPU.
namespace zero::cuda {

/// The levels of a format's codes of 4 bits.
struct Levels {
  float at[16];
};

inline Levels levels_of(WeightFormat format) {
  Levels levels{};
  for (std::size_t i = 0; i < 16; ++i) levels.at[i] = to_float(code_levels(format)[i]);
  return levels;
}

/// Fills the memory that a block's threads share with the levels of nf4, the one format that looks
/// them up. All threads call it.
template <WeightFormat format>
__device__ __forceinline__ void load_levels(const Levels& from, float* to) {
  if constexpr (format == WeightFormat::nf4) {
    if (threadIdx.x == 0) {
#pragma unroll
      for (int i = 0; i < 16; ++i) to[i] = from.at[i];
    }
    __syncthreads();
  }
}

/// The level of one code; `levels`: of nf4, memory that a warp reads at different places at once.
template <WeightFormat format>
__device__ __forceinline__ float level(unsigned code, const float* levels) {
  if constexpr (format == WeightFormat::int8) {
    return static_cast<float>(static_cast<signed char>(code));
  } else if constexpr (format == WeightFormat::q4) {
    return __uint_as_float(0x4B000000U | code) - 8388616.0F;  // 2^23 + code - (2^23 + 8)
  } else {
    return levels[code];
  }
}

template <WeightFormat format>
__device__ __forceinline__ float scale(const unsigned char* weight, const CodePlaces& places,
                                       std::int64_t column, std::int64_t depth) {
  if constexpr (format == WeightFormat::int8) {
    return *reinterpret_cast<const float*>(weight + places.scale(column, 0));
  } else {
    constexpr std::int64_t kGroup = scale_group(format);
    const unsigned char* const at = weight + places.scale(column, depth / kGroup);
    if constexpr (format == WeightFormat::q4) {
      return as_float(*reinterpret_cast<const float16*>(at));
    } else {
      const auto& range = *reinterpret_cast<const ScaleRange*>(
          weight + places.range(column, depth / (kGroup * kScaleBlockGroups)));
      return static_cast<float>(*at) * range.step + range.least;
    }
  }
}

/// Eight values: `words` of 8 codes of 4 bits, or of 4 codes of 8 bits each.
template <WeightFormat format>
__device__ __forceinline__ Floats<8> eight_values(const unsigned* words, float scale,
                                                  const float* levels) {
  constexpr int kBits = code_bits(format);
  constexpr int kEach = 32 / kBits;
  Floats<8> values;
#pragma unroll
  for (int i = 0; i < 8; ++i) {
    const unsigned code = words[i / kEach] >> (i % kEach * kBits) & ((1U << kBits) - 1U);
    values.at[i] = level<format>(code, levels) * scale;
  }
  return values;
}

/// Calls body(format) with the format as a constant.
template <class Body>
void with_format(WeightFormat format, const Body& body) {
  if (format == WeightFormat::int8) {
    body(std::integral_constant<WeightFormat, WeightFormat::int8>{});
  } else if (format == WeightFormat::nf4) {
    body(std::integral_constant<WeightFormat, WeightFormat::nf4>{});
  } else {
    body(std::integral_constant<WeightFormat, WeightFormat::q4>{});
  }
}

}  // namespace zero::cuda
