// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <span>

namespace zero {

// Passes over the logits of a vocabulary, with the vectors of the processor. Their bits are the
// same on all processors and depend on no mathematics library.

/// out[i] = e^((values[i] - largest) / temperature), within 4 units in the last place; 0 where
/// the exponent is -700 or less. No value exceeds `largest`; `out` has as many elements.
void exponentials(std::span<const float> values, double largest, double temperature,
                  std::span<double> out);

/// The sum of non-negative weights: eight sums, of elements i modulo 8, then the sum of these in
/// order.
double sum_by_lanes(std::span<const double> weights);

/// The least and the largest of some values, which are not empty. A NaN counts as beyond the
/// infinity of its sign.
struct Extremes {
  float least = 0;
  float largest = 0;
};
Extremes extremes_of(std::span<const float> values);

}  // namespace zero
