// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "optim/loss_scaler.h"

namespace zero {

class Engine;
struct StepReport;
struct TrainConfig;

/// The value of a skipped step that was not finite: "the loss", "the gradient of h.0.attn.bias".
std::string nonfinite_value(const StepReport& report);

/// The loss scale of a run: fp16's, or 1. Follows the reports of steps, which are equal on all
/// ranks, so it is too.
class LossScaling {
 public:
  explicit LossScaling(const TrainConfig& config);

  /// Multiplies the losses of the next step.
  double scale() const { return scaler_ ? scaler_->scale() : 1; }
  /// The step of the learning rate of optimizer step `step`. As in DeepSpeed, a step that an fp16
  /// run skips does not advance the schedule.
  std::int64_t schedule_step(std::int64_t step, const Engine& engine) const;
  /// Counts a step. Returns a line about a step that was skipped because it overflowed a dynamic
  /// scale; empty: no such step. Throws AgreedError, on all ranks alike, if no smaller scale is
  /// left.
  std::string after_step(const StepReport& report);

  /// A line about a step without overflow whose gradients are all zero, the first time; else empty.
  std::string vanished(const StepReport& report);

  /// Goes on from a checkpoint; nothing: one without fp16, or of another rule. Throws zero::Error
  /// if the state is none of this run's rule.
  void restore(const std::optional<LossScaler::State>& state);
  std::optional<LossScaler::State> state() const;
  /// The hash of the model states, and of the scaler's if there is one.
  std::uint64_t hash(std::uint64_t of_states) const;

 private:
  std::optional<LossScaler> scaler_;
  bool told_of_zeros_ = false;
};

}  // namespace zero
