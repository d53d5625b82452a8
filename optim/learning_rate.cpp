// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#include "optim/learning_rate.h"

#include <algorithm>
#include <cmath>
#include <numbers>

#include "base/error.h"

namespace zero {

namespace {

// The fraction of the way from `begin` (0) to `end` (1) at `step`.
double progress(std::int64_t step, std::int64_t begin, std::int64_t end) {
  if (step <= begin) return 0;
  if (step >= end) return 1;
  return static_cast<double>(step - begin) / static_cast<double>(end - begin);
}

void check_step(std::int64_t step) {
  ZERO_CHECK(step >= 1, "learning-rate schedule: step {}; steps are counted from 1", step);
}

}  // namespace

double LearningRateSchedule::at(std::int64_t step) const {
  validate();
  check_step(step);
  if (step < warmup_steps) {
    return peak * (static_cast<double>(step) / static_cast<double>(warmup_steps));
  }
  double fallen = 0;  // 0: at the peak, 1: at the end
  switch (kind) {
    case Kind::constant:
      break;
    case Kind::linear:
      fallen = progress(step, warmup_steps, total_steps);
      break;
    case Kind::cosine:
      fallen = 0.5 * (1 - std::cos(std::numbers::pi * progress(step, warmup_steps, total_steps)));
      break;
    case Kind::wsd:
      fallen = progress(step, total_steps - decay_steps, total_steps);
      break;
  }
  return peak * (1 - (1 - min_ratio) * fallen);
}

void LearningRateSchedule::validate() const {
  const std::string_view who = "learning-rate schedule";
  ZERO_CHECK(std::isfinite(peak) && peak >= 0,
             "{}: peak is {}; expected a finite value of 0 or more", who, peak);
  ZERO_CHECK(warmup_steps >= 0, "{}: warmup_steps is {}; expected 0 or more", who, warmup_steps);
  ZERO_CHECK(min_ratio >= 0 && min_ratio <= 1, "{}: min_ratio is {}; expected 0 to 1", who,
             min_ratio);
  if (kind == Kind::constant) return;
  ZERO_CHECK(total_steps >= 1, "{}: total_steps is {}; expected 1 or more for a schedule that ends",
             who, total_steps);
  ZERO_CHECK(warmup_steps <= total_steps,
             "{}: warmup_steps is {}; expected at most total_steps, {}", who, warmup_steps,
             total_steps);
  if (kind != Kind::wsd) return;
  ZERO_CHECK(decay_steps >= 1, "{}: decay_steps is {}; expected 1 or more for wsd", who,
             decay_steps);
  ZERO_CHECK(decay_steps <= total_steps - warmup_steps,
             "{}: decay_steps is {}; expected at most total_steps - warmup_steps, {}", who,
             decay_steps, total_steps - warmup_steps);
}

void DeepSpeedSchedule::validate() const {
  const std::string_view who = "DeepSpeed's learning-rate schedule";
  ZERO_CHECK(std::isfinite(low) && std::isfinite(high) && low >= 0 && high >= 0,
             "{}: rates of {} (low) and {} (high); expected finite values of 0 or more", who, low,
             high);
  ZERO_CHECK(warmup_steps >= 0, "{}: warmup_steps is {}; expected 0 or more", who, warmup_steps);
  ZERO_CHECK(std::isfinite(final_ratio) && final_ratio >= 0,
             "{}: final_ratio is {}; expected a finite value of 0 or more", who, final_ratio);
  ZERO_CHECK(kind == Kind::warmup || total_steps >= 1,
             "{}: total_steps is {}; expected 1 or more for a schedule that ends", who,
             total_steps);
}

double DeepSpeedSchedule::at(std::int64_t step) const {
  validate();
  check_step(step);
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
