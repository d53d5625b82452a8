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
  float correction2 = 1;  ///< sqrt(1 - beta2^step)
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

}  // namespace zero
