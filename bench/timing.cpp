// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#include "bench/timing.h"

#include <algorithm>
#include <chrono>
#include <utility>

#include "base/seconds_since.h"

namespace zero::bench {

Timing summary(std::vector<double> seconds) {
  std::sort(seconds.begin(), seconds.end());
  return {seconds.front(), seconds[seconds.size() / 2]};
}

double median_rate(std::vector<double> rates) {
  std::ranges::sort(rates);
  return rates[(rates.size() - 1) / 2];
}

double Turns::share() const {
  std::vector<double> shares;
  for (std::size_t i = 0; i < values.size(); ++i) {
    shares.push_back(2 * values[i] / (limits[i] + limits[i + 1]));
  }
  return median_rate(std::move(shares));
}

double Turns::best_share() const { return std::ranges::max(values) / std::ranges::max(limits); }

double seconds_of(const std::function<void()>& body) {
  const auto start = std::chrono::steady_clock::now();
  body();
  return seconds_since(start);
}

std::vector<Timing> interleaved(std::span<const std::function<void()>> cases, int rounds) {
  std::vector<std::vector<double>> samples(cases.size());
  for (const auto& body : cases) body();
  for (int round = 0; round < rounds; ++round) {
    for (std::size_t i = 0; i < cases.size(); ++i) samples[i].push_back(seconds_of(cases[i]));
  }
  std::vector<Timing> timings;
  for (auto& each : samples) timings.push_back(summary(std::move(each)));
  return timings;
}

}  // namespace zero::bench
