// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#include "architecture/rotary.h"

#include <cmath>
#include <numbers>

#include "base/error.h"

namespace zero {
namespace {

// Hugging Face's rope_type "llama3".
double stretched(double frequency, const RotaryScaling& s) {
  const auto context = static_cast<double>(s.original_context);
  const double turn = 2 * std::numbers::pi / frequency;  // positions
  if (turn < context / s.high_frequency) return frequency;
  if (turn > context / s.low_frequency) return frequency / s.factor;
  const double kept = (context / turn - s.low_frequency) / (s.high_frequency - s.low_frequency);
  return (1 - kept) * frequency / s.factor + kept * frequency;
}

}  // namespace

void RotaryAngles::validate() const {
  ZERO_CHECK(std::isfinite(theta) && theta > 0, "model.rope_theta is {}, expected more than 0",
             theta);
  ZERO_CHECK(std::isfinite(linear_factor) && linear_factor >= 1,
             "model.rope_factor is {}, expected 1 or more", linear_factor);
  if (!scaling) return;
  const RotaryScaling& s = *scaling;
  ZERO_CHECK(std::isfinite(s.factor) && s.factor >= 1,
             "model.rope_scaling.factor is {}, expected 1 or more", s.factor);
  ZERO_CHECK(
      std::isfinite(s.high_frequency) && s.low_frequency > 0 && s.high_frequency > s.low_frequency,
      "model.rope_scaling.low_freq_factor is {} and high_freq_factor {}, expected 0 < low < "
      "high",
      s.low_frequency, s.high_frequency);
  ZERO_CHECK(s.original_context >= 1,
             "model.rope_scaling.original_max_position_embeddings is {}, expected 1 or more",
             s.original_context);
}

std::vector<double> RotaryAngles::frequencies(std::int64_t head_width) const {
  std::vector<double> all;
  for (std::int64_t i = 0; i < head_width / 2; ++i) {
    const double frequency =
        std::pow(theta, -2.0 * static_cast<double>(i) / static_cast<double>(head_width));
    all.push_back((scaling ? stretched(frequency, *scaling) : frequency) / linear_factor);
  }
  return all;
}

}  // namespace zero
