// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#include "launch/learning_rate.h"

#include <algorithm>
#include <cmath>
#include <numbers>

namespace zero {

double DeepSpeedSchedule::at(std::int64_t step) const {
  const std::int64_t iteration = step - 2;
  if (iteration < 0) return kind == Kind::warmup_cosine ? 0.0 : low;
  const auto at = static_cast<double>(iteration);
  const auto warm = static_cast<double>(std::max<std::int64_t>(2, warmup_steps));
  const auto total = static_cast<double>(total_steps);
  double ratio = 1;
  if (at < warm) {
    ratio = warmup == Warmup::log ? std::log(at + 1) / std::log(warm) : at / warm;
  } else if (kind == Kind::warmup_decay) {
    ratio = std::max(0.0, (total - at) / std::max(1.0, total - warm));
  } else if (kind == Kind::warmup_cosine) {
    const double progress = std::min(1.0, (at - warm + 1) / std::max(1.0, total - warm));
    const double cosine = (1 + std::cos(std::numbers::pi * progress)) / 2;
    return high * std::max(0.0, final_ratio + (1 - final_ratio) * cosine);
  }
  return low + (high - low) * ratio;
}

}  // namespace zero
