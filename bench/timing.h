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

/// Best and median of `seconds`, which must not be empty.
Timing summary(std::vector<double> seconds);

/// The median; of an even number of rates, the slower of the middle two, as in summary().
double median_rate(std::vector<double> rates);

/// Measured rates and, in turn with them, rates of their limit: limits[i] before values[i] and
/// limits[i + 1] after it, so `limits` has one more.
struct Turns {
  std::vector<double> values;
  std::vector<double> limits;

  /// The median of value / mean of the two limits beside it, which cancels changes of the machine's
  /// pace from turn to turn.
  double share() const;
  /// The best value over the best limit.
  double best_share() const;
};

/// Seconds that `body` takes.
double seconds_of(const std::function<void()>& body);

/// Rounds of most sections: the median of so many is steady to some percent.
inline constexpr int kRounds = 7;

/// Calls every case once to warm up, then `rounds` times in turn, so that a disturbance affects all
/// cases alike.
std::vector<Timing> interleaved(std::span<const std::function<void()>> cases, int rounds);

}  // namespace zero::bench
