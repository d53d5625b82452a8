// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#include "engine/declared_order.h"

#include <algorithm>
#include <iterator>

#include "base/error.h"

namespace zero {
namespace {

/// Every unit forward in registration order, then backward in reverse.
std::vector<Use> usual_uses(int units) {
  std::vector<Use> uses;
  for (int unit = 0; unit < units; ++unit) uses.push_back({{unit}, Phase::forward});
  for (int unit = units - 1; unit >= 0; --unit) uses.push_back({{unit}, Phase::backward});
  return uses;
}

ScheduleInput schedule_input(std::span<const Unit> units, const Sharding& sharding,
                             const GradientReducer& reducer, const EngineOptions& options) {
  ScheduleInput input{{}, {}, options.limits};
  for (const Unit& unit : units) {
    UnitSize size;
    for (const Segment& segment : unit.segments)
      size.gathered_elements += sharding.window_elements(segment);
    size.gathered_bytes = size.gathered_elements * size_of(options.compute);
    const Segment* trainable = unit.trainable();
    if (trainable != nullptr && !sharding.direct_gradients(unit)) {
      size.gradient_elements = trainable->layout.padded();
      size.gradient_bytes = size.gradient_elements * size_of(reducer.window_dtype(unit));
    }
    input.units.push_back(size);
  }
  return input;
}

}  // namespace

std::vector<Use> declared_uses(const SealOptions& options, std::span<const Unit> units) {
  const auto count = static_cast<int>(units.size());
  std::vector<Use> uses = options.order.empty() ? usual_uses(count) : options.order;
  for (const Use& use : uses) {
    ZERO_CHECK(use.unit.index >= 0 && use.unit.index < count,
               "seal: the order uses unit {}, but {} units are registered", use.unit.index, count);
  }
  for (int unit = 0; unit < count; ++unit) {
    const bool backward = std::ranges::any_of(uses, [&](const Use& use) {
      return use.unit.index == unit && writes_gradients(use.phase);
    });
    const Unit& of = units[static_cast<std::size_t>(unit)];
    ZERO_CHECK(backward || of.trainable() == nullptr,
               "seal: unit \"{}\" has trainable parameters but no backward use in the order; "
               "declare one or freeze them",
               of.name);
  }
  return uses;
}

std::vector<int> order_of_first_use(std::span<const Use> uses, std::size_t units) {
  std::vector<int> order;
  const auto add = [&](int unit) {
    if (std::ranges::find(order, unit) == order.end()) order.push_back(unit);
  };
  for (const Use& use : uses) add(use.unit.index);
  for (std::size_t unit = 0; unit < units; ++unit) add(static_cast<int>(unit));
  return order;
}

std::vector<int> order_of_gradients(std::span<const Use> uses) {
  std::vector<int> order;
  for (const Use& use : uses) {
    if (!writes_gradients(use.phase)) continue;
    std::erase(order, use.unit.index);
    order.push_back(use.unit.index);
  }
  return order;
}

void mark_summed_uses(std::span<const Use> uses, std::span<Unit> units) {
  std::vector<int> backward_uses(units.size(), 0);
  for (const Use& use : uses) {
    const auto unit = static_cast<std::size_t>(use.unit.index);
    if (writes_gradients(use.phase)) units[unit].sums_uses = ++backward_uses[unit] > 1;
  }
}

Schedules make_schedules(std::span<const Use> uses, std::span<const Unit> units,
                         const Sharding& sharding, const GradientReducer& reducer,
                         const EngineOptions& options) {
  ScheduleInput training = schedule_input(units, sharding, reducer, options);
  ScheduleInput evaluation = training;
  training.uses.assign(uses.begin(), uses.end());
  for (const Use& use : uses) {
    if (use.phase == Phase::forward || use.phase == Phase::both)
      evaluation.uses.push_back({use.unit, Phase::forward, use.needs_parameters});
  }
  return {make_schedule(training), make_schedule(evaluation)};
}

}  // namespace zero
