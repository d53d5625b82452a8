// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>

#include "base/mixed_bits.h"
#include "optim/optimizer.h"

namespace zero {

/// The factors of Adam and AdamW in one step, rounded to fp32 once.
struct AdamConstants {
  float gradient_scale = 1;
  float keep = 1;   ///< AdamW: 1 - learning_rate * weight_decay
  float decay = 0;  ///< Adam: weight_decay, added to the gradient
  float beta2 = 0;
  float one_minus_beta1 = 0;
  float one_minus_beta2 = 0;
  float correction2 = 1;  ///< 1 / sqrt(1 - beta2^step)
  float epsilon = 0;
  float step_size = 0;  ///< learning_rate / (1 - beta1^step)
};

/// The factors of SGD in one step.
struct SgdConstants {
  float gradient_scale = 1;
  float decay = 0;
  float momentum = 0;
  float learning_rate = 0;
};

inline AdamConstants adam_constants(const OptimizerConfig& config,
                                    const UpdateArguments& arguments) {
  const auto step = static_cast<double>(arguments.step);
  const double correction1 = 1 - std::pow(config.beta1, step);
  const double correction2 = 1 - std::pow(config.beta2, step);
  return {.gradient_scale = arguments.gradient_scale,
          .keep = static_cast<float>(1 - arguments.learning_rate * arguments.weight_decay),
          .decay = static_cast<float>(arguments.weight_decay),
          .beta2 = static_cast<float>(config.beta2),
          .one_minus_beta1 = static_cast<float>(1 - config.beta1),
          .one_minus_beta2 = static_cast<float>(1 - config.beta2),
          .correction2 = static_cast<float>(1 / std::sqrt(correction2)),
          .epsilon = static_cast<float>(config.epsilon),
          .step_size = static_cast<float>(arguments.learning_rate / correction1)};
}

inline SgdConstants sgd_constants(const OptimizerConfig& config, const UpdateArguments& arguments) {
  return {.gradient_scale = arguments.gradient_scale,
          .decay = static_cast<float>(arguments.weight_decay),
          .momentum = static_cast<float>(config.momentum),
          .learning_rate = static_cast<float>(arguments.learning_rate)};
}

/// The memory of one update: the views of UpdateArguments as pointers. Moments that the rule does
/// not have, and `compute` if no copy is wanted, are null.
struct UpdateMemory {
  float* master = nullptr;
  float* moment0 = nullptr;
  float* moment1 = nullptr;
  const void* gradient = nullptr;
  DType gradient_dtype = DType::fp32;
  void* compute = nullptr;
  DType compute_dtype = DType::bf16;
};

/// Moments in a small format, which UpdateMemory does not point to.
struct SmallMoments {
  MomentFormat format = MomentFormat::fp32;  ///< fp32: none
  int count = 0;                             ///< 1 or 2 moments
  void* values[2] = {};                      ///< bfloat16 or uint8_t
  float* scales[2] = {};                     ///< of 8-bit moments
  LogicalElements elements{};                ///< of bf16 moments
  std::int64_t step = 1;
};

/// The small moments of an update with `moments` moments.
inline SmallMoments small_moments_of(const UpdateArguments& arguments, MomentFormat format,
                                     int moments) {
  SmallMoments small{
      .format = format, .count = moments, .elements = arguments.elements, .step = arguments.step};
  for (std::size_t i = 0; i < static_cast<std::size_t>(moments); ++i) {
    small.values[i] = arguments.moments[i].data();
    small.scales[i] = static_cast<float*>(arguments.scales[i].data());
  }
  return small;
}

/// The memory of an update with `moments` moments in fp32.
inline UpdateMemory memory_of(const UpdateArguments& arguments, int moments) {
  const auto moment = [&](int index) {
    return index < moments
               ? static_cast<float*>(arguments.moments[static_cast<std::size_t>(index)].data())
               : nullptr;
  };
  return {.master = static_cast<float*>(arguments.master.data()),
          .moment0 = moment(0),
          .moment1 = moment(1),
          .gradient = arguments.gradient.data(),
          .gradient_dtype = arguments.gradient.dtype(),
          .compute = arguments.compute.empty() ? nullptr : arguments.compute.data(),
          .compute_dtype = arguments.compute.dtype()};
}

/// The keys of RandomBits (optim/small_moments.inc) for 2^32 elements of one parameter in one
/// step.
struct RoundingKeys {
  std::uint32_t first = 0;
  std::uint32_t second = 0;
};

/// `high` is the element's number divided by 2^32.
constexpr RoundingKeys rounding_keys(std::uint64_t parameter, std::int64_t step,
                                     std::int64_t high) {
  std::uint64_t key = split_mix(parameter);
  key = mixed_bits(key ^ split_mix(static_cast<std::uint64_t>(step)));
  key = mixed_bits(key + kGoldenGamma * static_cast<std::uint64_t>(high));
  return {static_cast<std::uint32_t>(key), static_cast<std::uint32_t>(key >> 32)};
}

/// Elements begin, begin + 1, ... of an update that are consecutive in the logical tensor.
struct RoundingRun {
  RoundingKeys keys;
  std::uint32_t element = 0;  ///< the low 32 bits of the first one's number
  std::int64_t begin = 0;
  std::int64_t count = 0;
};

/// Calls body(RoundingRun) for runs that cover elements [begin, begin + count) of an update.
template <typename Body>
void for_each_rounding_run(const LogicalElements& elements, std::int64_t step, std::int64_t begin,
                           std::int64_t count, Body&& body) {
  const std::int64_t end = begin + count;
  while (begin < end) {
    const std::int64_t element = elements.at(begin);
    const std::int64_t of_run = elements.run - begin % elements.run;
    const std::int64_t of_keys = (std::int64_t{1} << 32) - (element & 0xffffffff);
    const std::int64_t length = std::min({end - begin, of_run, of_keys});
    body(RoundingRun{rounding_keys(elements.parameter, step, element >> 32),
                     static_cast<std::uint32_t>(element), begin, length});
    begin += length;
  }
}

}  // namespace zero
