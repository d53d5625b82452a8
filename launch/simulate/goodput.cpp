// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#include "launch/simulate/goodput.h"

#include <cmath>

namespace zero {

double Failures::goodput(double interval) const {
  const double rate = 1 / between;
  if (interval <= 0) return save > 0 ? 0 : std::exp(-rate * restart);
  return rate * interval * std::exp(-rate * restart) / std::expm1(rate * (interval + save));
}

// The derivative is zero where x = 1 - exp(-x - rate * save), x = rate * interval. Newton's steps
// from Young's interval stay right of the root, where the difference is convex.
double Failures::best_interval() const {
  if (save <= 0) return 0;
  const double lost = save / between;
  double x = std::sqrt(2 * lost);
  for (int step = 0; step < 64; ++step) {
    const double ended = -std::expm1(-x - lost);
    const double next = x - (x - ended) / ended;
    if (std::abs(next - x) <= 1e-15 * x) break;
    x = next;
  }
  return x * between;
}

}  // namespace zero
