// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>

namespace zero {

/// How the loss scale of fp16 training answers overflows. The defaults are DeepSpeed's.
struct LossScaleRule {
  bool dynamic = true;         ///< false: `initial` for the whole run
  double initial = 65536;      ///< the first scale
  std::int64_t window = 1000;  ///< steps without overflow from one doubling to the next
  /// Steps without overflow, beyond `window`, before the first doubling after the start or an
  /// overflow: DeepSpeed counts 1, PyTorch 0.
  std::int64_t delay = 1;
  std::int64_t hysteresis = 2;  ///< the scale halves at the overflow of this number and at each
                                ///< later one; a doubling restarts the count
  bool consecutive_hysteresis = false;  ///< every step without overflow restarts the count
  double minimum = 1;                   ///< the scale never falls below; 0: as far as fp32 goes
  friend bool operator==(const LossScaleRule&, const LossScaleRule&) = default;

  /// The rule of PyTorch's GradScaler: doubled by every 2000th step without overflow, halved by
  /// every overflow.
  static LossScaleRule grad_scaler();
  /// One line, equal for equal rules.
  std::string text() const;
};
/// Throws zero::Error naming the field that is out of range, and the range.
void validate(const LossScaleRule& rule);

/// The effect of a step on the loss scale.
enum class LossScaleChange : std::uint8_t {
  kept,
  doubled,
  tolerated,  ///< an overflow that hysteresis lets pass: the scale stays
  halved,     ///< or lowered to the minimum
  exhausted,  ///< an overflow at the minimum: the scale stays, and training cannot go on
};

/// The loss scale of fp16 training: losses are multiplied by scale(), gradients divided by it
/// (StepOptions::loss_scale), and update() is called once after each optimizer step, with the same
/// argument on all ranks. Scales are the first one, or the smallest, times powers of two. A value
/// type.
class LossScaler {
 public:
  /// All that update() depends on beside the rule. A run keeps it in its checkpoints.
  struct State {
    double scale = 1;
    std::int64_t good_steps = 0;  ///< without overflow since the start or the last overflow
    std::int64_t hysteresis = 1;  ///< overflows up to the next that halves the scale
    friend bool operator==(const State&, const State&) = default;
  };

  /// Throws zero::Error if the rule is not valid.
  explicit LossScaler(const LossScaleRule& rule);

  const LossScaleRule& rule() const { return rule_; }
  double scale() const { return state_.scale; }
  /// Counts one step. A static rule keeps its scale, and counts nothing.
  LossScaleChange update(bool overflow);

  const State& state() const { return state_; }
  /// Goes on from `state`. Throws zero::Error unless a scaler of the same rule can be in it.
  void restore(const State& state);
  /// The state as one line, equal for equal states.
  std::string text() const;

 private:
  bool has(const State& state) const;
  double least_scale() const;
  LossScaleChange overflowed();
  LossScaleChange succeeded();

  LossScaleRule rule_;
  State state_;
};

}  // namespace zero
