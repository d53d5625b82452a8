// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#include "optim/update.h"

#include <cmath>

namespace zero {

AdamConstants adam_constants(const OptimizerConfig& config, const UpdateArguments& arguments) {
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

SgdConstants sgd_constants(const OptimizerConfig& config, const UpdateArguments& arguments) {
  return {.gradient_scale = arguments.gradient_scale,
          .decay = static_cast<float>(arguments.weight_decay),
          .momentum = static_cast<float>(config.momentum),
          .learning_rate = static_cast<float>(arguments.learning_rate)};
}

}  // namespace zero
