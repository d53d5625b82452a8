// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <variant>

namespace zero {

/// The learning rate of each optimizer step. A value type; at(step) is pure, so a resumed run
/// continues exactly.
struct LearningRateSchedule {
  enum class Kind : std::uint8_t {
    constant,
    linear,  ///< warm-up, then linearly down to min_ratio at total_steps
    cosine,  ///< warm-up, then half a cosine down to min_ratio at total_steps
    wsd,     ///< warm-up, stable, then linearly down over the last decay_steps (warm-up, stable,
             ///< decay)
  };
  Kind kind = Kind::constant;
  double peak = 1e-3;  ///< after warm-up
  std::int64_t warmup_steps =
      0;  ///< linear from peak/warmup_steps (at step 1) to peak (at step warmup_steps)
  std::int64_t total_steps = 0;  ///< linear, cosine, wsd; later steps keep the last value
  std::int64_t decay_steps = 0;  ///< wsd
  double min_ratio = 0;          ///< final learning rate over peak

  /// Learning rate of optimizer step `step`, counted from 1. Throws as validate() does.
  double at(std::int64_t step) const;
  /// Throws zero::Error naming the field that is out of range: total_steps, if it is not given to a
  /// schedule that ends.
  void validate() const;
};

/// DeepSpeed's schedules and formulas. Like DeepSpeed's engine, advances the scheduler after each
/// optimizer step: step 1 uses the lowest rate, step s the formula at iteration s - 2.
struct DeepSpeedSchedule {
  enum class Kind : std::uint8_t { warmup, warmup_decay, warmup_cosine };
  enum class Warmup : std::uint8_t { log, linear };
  Kind kind = Kind::warmup;
  Warmup warmup = Warmup::log;
  double low = 0;   ///< warmup_min_lr; for warmup_cosine warmup_min_ratio x lr
  double high = 0;  ///< warmup_max_lr; for warmup_cosine lr
  std::int64_t warmup_steps = 1000;
  std::int64_t total_steps = 0;
  double final_ratio = 0;  ///< warmup_cosine: cos_min_ratio

  /// Learning rate of optimizer step `step`, counted from 1. Throws as validate() does.
  double at(std::int64_t step) const;
  /// Throws zero::Error naming the field that is out of range.
  void validate() const;
};

/// A schedule of either kind. A value type; at() is pure.
class LearningRates {
 public:
  LearningRates() = default;
  explicit LearningRates(const DeepSpeedSchedule& schedule) : schedule_(schedule) {}
  explicit LearningRates(const LearningRateSchedule& schedule) : schedule_(schedule) {}

  /// Learning rate of optimizer step `step`, counted from 1. Throws as validate() does.
  double at(std::int64_t step) const {
    return std::visit([&](const auto& s) { return s.at(step); }, schedule_);
  }

 private:
  std::variant<LearningRateSchedule, DeepSpeedSchedule> schedule_;
};

}  // namespace zero
