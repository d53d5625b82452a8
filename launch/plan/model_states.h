// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include "base/dtype.h"
#include "optim/optimizer_config.h"

namespace zero {

/// Bytes of one of Adam's moments of `elements`, its scales included.
std::int64_t moment_bytes(MomentFormat format, std::int64_t elements);

/// Bytes of a rank's model states under Adam, without padding and partial sums.
struct ModelStates {
  std::int64_t parameters = 0;
  std::int64_t gradients = 0;
  std::int64_t optimizer = 0;  ///< fp32 masters, unless parameters are fp32, and two moments

  std::int64_t total() const { return parameters + gradients + optimizer; }
};

/// The states of `elements` parameters at a stage over `ranks` (1 to any), of the fullest rank: a
/// share is rounded up. Gradients are of the compute dtype.
ModelStates model_states(std::int64_t elements, int stage, std::int64_t ranks,
                         DType compute = DType::bf16, MomentFormat moments = MomentFormat::fp32);

}  // namespace zero
