// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#include "launch/train/loss_scaling.h"

#include <fmt/format.h>

#include "collectives/agreement.h"
#include "engine/engine.h"
#include "engine/value_hash.h"
#include "launch/config/train_config.h"

namespace zero {

std::string nonfinite_value(const StepReport& report) {
  return *report.nonfinite == "loss" ? std::string("the loss")
                                     : fmt::format("the gradient of {}", *report.nonfinite);
}

LossScaling::LossScaling(const TrainConfig& config) {
  if (config.loss_scale_rule) scaler_.emplace(*config.loss_scale_rule);
}

std::int64_t LossScaling::schedule_step(std::int64_t step, const Engine& engine) const {
  return scaler_ ? engine.states().steps_done() + 1 : step;
}

std::string LossScaling::after_step(const StepReport& report) {
  if (!scaler_ || !scaler_->rule().dynamic) return "";
  const double before = scaler_->scale();
  const LossScaleChange change = scaler_->update(report.nonfinite.has_value());
  if (!report.nonfinite) return "";
  if (change == LossScaleChange::exhausted) {
    throw AgreedError(fmt::format(
        "step {}: {} overflows fp16 at loss scale {}, the smallest that fp16.min_loss_scale "
        "allows. {} optimizer.params.lr, lengthen the warm-up, check the weights of run.init, or "
        "compute in bf16",
        report.step, nonfinite_value(report), before,
        before > 1 ? "Lower fp16.min_loss_scale; if that is no help, lower" : "Lower"));
  }
  return fmt::format(
      "step {}: {} overflows fp16 at loss scale {}; the update was skipped, and the scale {} {}",
      report.step, nonfinite_value(report), before,
      change == LossScaleChange::halved ? "becomes" : "stays (fp16.hysteresis)", scaler_->scale());
}

std::string LossScaling::vanished(const StepReport& report) {
  if (!scaler_ || report.gradient_norm != 0 || told_of_zeros_) return "";
  told_of_zeros_ = true;
  return fmt::format(
      "warning: step {}: every gradient is zero at loss scale {}: what is below 6e-8 vanishes in "
      "fp16, and nothing is learned. {}",
      report.step, scaler_->scale(),
      scaler_->rule().dynamic ? "Raise fp16.min_loss_scale, or compute in bf16"
                              : "Raise fp16.loss_scale, or set it to 0 (dynamic)");
}

void LossScaling::restore(const std::optional<LossScaler::State>& state) {
  if (scaler_ && state) scaler_->restore(*state);
}

std::optional<LossScaler::State> LossScaling::state() const {
  return scaler_ ? std::optional(scaler_->state()) : std::nullopt;
}

std::uint64_t LossScaling::hash(std::uint64_t of_states) const {
  return scaler_ ? hash_text(scaler_->text(), of_states) : of_states;
}

}  // namespace zero
