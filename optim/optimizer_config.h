// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string_view>

#include "optim/moment_format.h"

namespace zero {

/// The update rule and its constants. Doubles, like PyTorch's: step sizes are computed in double
/// and rounded to fp32 once.
struct OptimizerConfig {
  enum class Kind : std::uint8_t {
    adamw,  ///< decoupled weight decay (Loshchilov & Hutter 2019)
    adam,   ///< weight decay added to the gradient (Kingma & Ba 2015)
    sgd,    ///< momentum as PyTorch defines it: buf = momentum * buf + g; p -= lr * buf
  };
  Kind kind = Kind::adamw;
  double beta1 = 0.9;
  double beta2 = 0.999;
  double epsilon = 1e-8;
  double weight_decay = 0.01;  ///< for parameters of no other group
  double momentum = 0;         ///< sgd
  MomentFormat moments = MomentFormat::fp32;
};
std::string_view name_of(OptimizerConfig::Kind kind);
/// Throws zero::Error naming every constant of the kind that is out of range.
void validate(const OptimizerConfig& config);

}  // namespace zero
