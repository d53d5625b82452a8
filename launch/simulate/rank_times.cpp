// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#include "launch/simulate/rank_times.h"

#include <algorithm>
#include <optional>
#include <string>
#include <utility>

namespace zero {

CoreShare CoreShare::of(int cores, int ranks, int threads) {
  if (cores == 0) return {};
  const double own = static_cast<double>(cores) / ranks;
  const double used = std::min<double>(threads, own);
  return {.compute_slowdown = std::max(1.0, threads / own),
          .copy_slowdown = std::max(1.0, 1 / own),
          .compute_share = std::clamp((own - 1) / used, 0.0, 1.0)};
}

RankTimes::Totals RankTimes::Totals::since(const Totals& earlier) const {
  return {flop - earlier.flop, repeated - earlier.repeated, arithmetic - earlier.arithmetic,
          memory - earlier.memory, measured - earlier.measured};
}

RankTimes::RankTimes(const Machine& machine, const OperationRates& rates, DType compute,
                     CoreShare cores)
    : machine_(machine), rates_(rates), compute_(compute), cores_(cores) {}

double RankTimes::operation_seconds(const OpCost& cost) {
  const MachineTimes& times = machine_.times;
  const bool of_attention = cost.name.starts_with("attention");
  const double rate =
      machine_.reached(compute_) * (of_attention ? times.attention : times.products);
  const double arithmetic = cost.flop / rate;
  const double memory = cost.bytes / (times.memory_bandwidth * times.memory);
  double seconds = std::max(arithmetic, memory);
  const std::optional<double> measured = rates_.seconds(cost, compute_);
  if (measured) seconds = *measured;
  seconds = std::max(seconds, times.least_time) * cores_.compute_slowdown;
  (arithmetic > memory ? totals_.arithmetic : totals_.memory) += seconds;
  if (measured) totals_.measured += seconds;
  return seconds;
}

double RankTimes::seconds(Lane lane, std::string_view what, std::int64_t bytes) {
  if (lane == Lane::compute && in_operation_) return std::exchange(pending_, 0);
  if (bytes == 0) return 0;
  const OpCost cost{.name = std::string(what), .flop = 0, .bytes = static_cast<double>(bytes)};
  if (lane == Lane::compute) return operation_seconds(cost);
  const MachineTimes& times = machine_.times;
  return std::max(times.least_time, cost.bytes / (times.memory_bandwidth * times.memory)) *
         cores_.copy_slowdown;
}

void RankTimes::begin(const OpCost& cost) {
  (phase_ == Phase::recompute ? totals_.repeated : totals_.flop) += cost.flop;
  in_operation_ = true;
  pending_ = operation_seconds(cost);
  if (also_ != nullptr) also_->begin(cost);
}

void RankTimes::end() noexcept {
  in_operation_ = false;
  if (also_ != nullptr) also_->end();
}

void RankTimes::unit(std::string_view name, Phase phase) {
  phase_ = phase;
  if (also_ != nullptr) also_->unit(name, phase);
}

}  // namespace zero
