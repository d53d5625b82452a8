// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#include "engine/whole_units.h"

#include <algorithm>
#include <cstddef>
#include <limits>
#include <set>
#include <utility>

#include "base/error.h"

namespace zero {
namespace {

std::int64_t window_bytes(ScheduleInput input, const std::vector<bool>& whole) {
  for (std::size_t unit = 0; unit < input.units.size(); ++unit) {
    if (whole[unit]) input.units[unit].gathered_elements = input.units[unit].gathered_bytes = 0;
  }
  return make_schedule(input).gradients_begin;
}

}  // namespace

ScheduleInputs with_evaluation(ScheduleInput training) {
  ScheduleInputs inputs{std::move(training), {}};
  inputs.evaluation.units = inputs.training.units;
  inputs.evaluation.limits = inputs.training.limits;
  for (const Use& use : inputs.training.uses) {
    if (use.phase == Phase::forward || use.phase == Phase::both)
      inputs.evaluation.uses.push_back({use.unit, Phase::forward, use.needs_parameters});
  }
  return inputs;
}

std::int64_t parameter_bytes(const ScheduleInputs& inputs, std::span<const KeptBytes> kept,
                             const std::vector<bool>& whole) {
  std::int64_t bytes =
      std::max(window_bytes(inputs.training, whole), window_bytes(inputs.evaluation, whole));
  for (std::size_t unit = 0; unit < kept.size(); ++unit)
    bytes += whole[unit] ? kept[unit].whole : kept[unit].sharded;
  return bytes;
}

std::vector<bool> choose_whole_units(const ScheduleInputs& inputs,
                                     std::span<const KeptBytes> kept) {
  const std::vector<UnitSize>& units = inputs.training.units;
  ZERO_CHECK(kept.size() == units.size() && inputs.evaluation.units.size() == units.size(),
             "whole units: {} and {} units and kept bytes of {}; expected one of each",
             units.size(), inputs.evaluation.units.size(), kept.size());
  std::set<std::int64_t> cuts{std::numeric_limits<std::int64_t>::max()};
  for (const UnitSize& unit : units) {
    if (unit.gathered_bytes > 0) cuts.insert(unit.gathered_elements);
  }
  std::vector<bool> best;
  std::int64_t least = std::numeric_limits<std::int64_t>::max();
  for (const std::int64_t cut : cuts) {  // ascending: the first of equal sums gathers least
    std::vector<bool> whole(units.size());
    for (std::size_t unit = 0; unit < units.size(); ++unit) {
      whole[unit] = units[unit].gathered_bytes > 0 && units[unit].gathered_elements >= cut;
    }
    const std::int64_t bytes = parameter_bytes(inputs, kept, whole);
    if (bytes >= least) continue;
    least = bytes;
    best = std::move(whole);
  }
  return best;
}

}  // namespace zero
