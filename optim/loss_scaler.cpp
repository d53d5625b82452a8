// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#include "optim/loss_scaler.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "base/error.h"

namespace zero {
namespace {

// Gradients are scaled and unscaled in fp32.
using Limits = std::numeric_limits<float>;

constexpr double kFactor = 2;

bool is_scale(double value) { return value >= Limits::min() && value <= Limits::max(); }

/// Whether `scale` is `first` times a power of two.
bool is_power_times(double scale, double first) {
  int exponent = 0;
  return std::frexp(scale / first, &exponent) == 0.5;
}

}  // namespace

LossScaleRule LossScaleRule::grad_scaler() {
  return {.window = 2000, .delay = 0, .hysteresis = 1, .minimum = 0};
}

std::string LossScaleRule::text() const {
  if (!dynamic) return fmt::format("static {}", initial);
  return fmt::format(
      "dynamic initial={} window={} delay={} hysteresis={} consecutive={} minimum={}", initial,
      window, delay, hysteresis, consecutive_hysteresis, minimum);
}

void validate(const LossScaleRule& rule) {
  ZERO_CHECK(is_scale(rule.initial), "loss scale: the first is {}, expected {:.2g} to {:.2g}",
             rule.initial, Limits::min(), Limits::max());
  if (!rule.dynamic) return;
  ZERO_CHECK(rule.minimum == 0 || is_scale(rule.minimum),
             "loss scale: the minimum is {}, expected 0 (none), or {:.2g} to {:.2g}", rule.minimum,
             Limits::min(), Limits::max());
  ZERO_CHECK(rule.initial >= rule.minimum,
             "loss scale: the first, {}, is below the minimum, {}; make it at least that",
             rule.initial, rule.minimum);
  ZERO_CHECK(rule.window >= 1, "loss scale: the window is {} steps, expected at least 1",
             rule.window);
  ZERO_CHECK(rule.delay >= 0, "loss scale: the delay is {} steps, expected at least 0", rule.delay);
  ZERO_CHECK(rule.hysteresis >= 1, "loss scale: hysteresis is {} overflows, expected at least 1",
             rule.hysteresis);
}

LossScaler::LossScaler(const LossScaleRule& rule)
    : rule_(rule), state_{.scale = rule.initial, .hysteresis = rule.hysteresis} {
  validate(rule);
}

LossScaleChange LossScaler::update(bool overflow) {
  if (!rule_.dynamic) return LossScaleChange::kept;
  return overflow ? overflowed() : succeeded();
}

double LossScaler::least_scale() const { return std::max<double>(rule_.minimum, Limits::min()); }

LossScaleChange LossScaler::overflowed() {
  state_.good_steps = 0;
  if (state_.hysteresis > 1) {
    --state_.hysteresis;
    return LossScaleChange::tolerated;
  }
  const double least = least_scale();
  if (state_.scale <= least) return LossScaleChange::exhausted;
  state_.scale = std::max(state_.scale / kFactor, least);
  return LossScaleChange::halved;
}

LossScaleChange LossScaler::succeeded() {
  ++state_.good_steps;
  if (rule_.consecutive_hysteresis) state_.hysteresis = rule_.hysteresis;
  const std::int64_t counted = state_.good_steps - rule_.delay;
  if (counted <= 0 || counted % rule_.window != 0) return LossScaleChange::kept;
  state_.hysteresis = rule_.hysteresis;
  if (state_.scale * kFactor > Limits::max()) return LossScaleChange::kept;
  state_.scale *= kFactor;
  return LossScaleChange::doubled;
}

bool LossScaler::has(const State& state) const {
  if (!rule_.dynamic) return state == State{.scale = rule_.initial, .hysteresis = rule_.hysteresis};
  const double least = least_scale();
  if (!is_scale(state.scale) || state.scale < least || state.good_steps < 0) return false;
  if (!is_power_times(state.scale, rule_.initial) && !is_power_times(state.scale, least))
    return false;
  if (state.hysteresis < 1 || state.hysteresis > rule_.hysteresis) return false;
  // Overflows that hysteresis has let pass are counted up to a step that restarts the count.
  if (state.hysteresis == rule_.hysteresis) return true;
  if (rule_.consecutive_hysteresis) return state.good_steps == 0;
  return state.good_steps - rule_.delay < rule_.window;
}

void LossScaler::restore(const State& state) {
  ZERO_CHECK(has(state),
             "loss scale: a scale of {} after {} steps without overflow, with {} overflows up to "
             "the next smaller one, is no state of the rule \"{}\"",
             state.scale, state.good_steps, state.hysteresis, rule_.text());
  state_ = state;
}

std::string LossScaler::text() const {
  return fmt::format("loss scale {} after {} good steps, hysteresis {}", state_.scale,
                     state_.good_steps, state_.hysteresis);
}

}  // namespace zero
