// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cmath>

#include "tests/model/training_harness.h"

namespace zero::testing {

/// How finite differences of an fp32 loss are taken.
struct Differences {
  std::size_t parts = 3;  ///< of a parameter, one element in each
  float step = 4e-3F;
  double least = 0.25;  ///< slopes below it may be as far off as one of it
};

/// One element in some parts of every parameter: the summed loss of `batch` moves by the gradient
/// when the element moves.
inline void expect_gradients_are_slopes(Training& training, const Batch& batch,
                                        const Differences& how) {
  training.train(batch, 1.0F);
  std::map<std::string, std::vector<float>> gradients;
  for (const auto& [name, count] : training.sizes()) {
    gradients[name] = training.read(name, StateKind::gradient);
  }
  training.engine.step({.learning_rate = 0});
  for (const auto& [name, gradient] : gradients) {
    std::vector<float> values = training.read(name);
    for (std::size_t i = 1; i < values.size(); i += values.size() / how.parts + 1) {
      const float kept = values[i];
      const auto loss_at = [&](float value) {
        values[i] = value;
        training.write(name, values);
        return training.evaluate(batch);
      };
      // Of fourth order: the truncation error stays below the rounding of an fp32 loss.
      const auto change = [&](float by) { return loss_at(kept + by) - loss_at(kept - by); };
      const double slope = (8 * change(how.step) - change(2 * how.step)) / (12.0 * how.step);
      EXPECT_NEAR(gradient[i], slope, 1e-2 * std::max(how.least, std::abs(slope)))
          << name << " " << i;
      values[i] = kept;
      training.write(name, values);
    }
  }
}

}  // namespace zero::testing
