// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <span>

namespace zero {

// Passes over the logits of a vocabulary, with the vectors of the processor. Their bits are the
// same on all processors and depend on no mathematics library.

/// out[i] = e^((values[i] - largest) / temperature), within 2 units in the last place; 0 below
/// e^-700. No value exceeds `largest`; `out` has as many elements.
void exponentials(std::span<const float> values, double largest, double temperature,
                  std::span<double> out);

/// The sum of non-negative weights: of each eighth one, then of those eight sums.
double sum_by_lanes(std::span<const double> weights);

/// The least and the largest of some values, which are not empty, if NaNs are beyond infinities.
struct Extremes {
  float least = 0;
  float largest = 0;
};
Extremes extremes_of(std::span<const float> values);

}  // namespace zero
