// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace zero {

/// A learning rate for each optimizer step. A value type; at(step) is pure, so a resumed run
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

  /// Learning rate of optimizer step `step`, counted from 1.
  double at(std::int64_t step) const;
  /// Throws zero::Error naming the field that is out of range.
  void validate() const;
};

}  // namespace zero
