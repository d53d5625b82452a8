// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

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

AdamConstants adam_constants(const OptimizerConfig& config, const UpdateArguments& arguments);
SgdConstants sgd_constants(const OptimizerConfig& config, const UpdateArguments& arguments);

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

}  // namespace zero
