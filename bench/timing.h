// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <span>
#include <vector>

namespace zero::bench {

/// Seconds of one call.
struct Timing {
  double best = 0;
  double median = 0;
};

/// Best and median of some seconds; at least one.
Timing summary(std::vector<double> seconds);

/// Of rates; of an even number the slower of the two in the middle, as of summary()'s seconds.
double median_rate(std::vector<double> rates);

/// Rates in turn with those of their limit, which come before, between and after: limits has one
/// more.
struct Turns {
  std::vector<double> values;
  std::vector<double> limits;

  /// The median of each value over the mean of the limits beside it: a machine that changes its
  /// pace from turn to turn changes both.
  double share() const;
  /// The best value over the best limit.
  double best_share() const;
};

/// Seconds that `body` takes.
double seconds_of(const std::function<void()>& body);

/// Calls every case once to warm up, then `rounds` times in turn, so that a disturbance hits all
/// alike.
std::vector<Timing> interleaved(std::span<const std::function<void()>> cases, int rounds);

}  // namespace zero::bench
