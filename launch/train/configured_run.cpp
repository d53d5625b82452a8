// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#include "launch/train/configured_run.h"

#include <utility>
#include <vector>

#include "base/error.h"
#include "launch/config/train_config.h"
#include "launch/process/device_choice.h"
#include "launch/train/memory_fit.h"
#include "launch/train/plan.h"
#include "launch/train/rank_room.h"
#include "launch/train/run_device.h"
#include "launch/train/tier_ladder.h"
#include "launch/train/tier_lines.h"
#include "launch/train/train_flags.h"

namespace zero {
namespace {

int ranks_of_host(const TrainFlags& flags, int world) {
  return flags.start.world == world ? flags.start.local_world : world;
}

/// The configuration as one process sees it, without asking the other ranks; tiers that are "auto"
/// by the memory that it finds.
TrainConfig configured_alone(const TrainFlags& flags, int world) {
  TrainConfig config = configured(flags, read_values(flags, world), world);
  if (!tiers_are_auto(config.values)) return config;
  const BackendKind host = planned_backend(flags.start, world);
  fit_memory(config, backend_on(config.run.device, config, host), room_alone(config, flags.start));
  return config;
}

}  // namespace

Configuration read_values(const TrainFlags& flags, int world) {
  std::vector<std::string> overrides = flags.overrides;
  if (flags.profile) overrides.emplace_back("run.profile=true");
  // As JSON, so that a file name is not parsed as a number.
  if (!flags.trace.empty()) overrides.push_back("run.trace=" + nlohmann::json(flags.trace).dump());
  if (!flags.memory_trace.empty()) {
    overrides.push_back("run.memory_trace=" + nlohmann::json(flags.memory_trace).dump());
  }
  Refusals refusals;
  Configuration values = Configuration::read(flags.config, overrides, &refusals);
  const bool threads = flags.start.by == Start::By::threads;
  resolve_device(values, ranks_of_host(flags, world),
                 threads ? RanksAre::threads : RanksAre::processes);
  if (!refusals.empty()) {  // raises them, with what does not fit
    make_train_config(values, world, ranks_of_host(flags, world), std::move(refusals));
  }
  return values;
}

TrainConfig configured(const TrainFlags& flags, Configuration values, int world) {
  return make_train_config(std::move(values), world, ranks_of_host(flags, world));
}

std::string printed_config(const TrainFlags& flags, int world) {
  return configured_alone(flags, world).values.dump();
}

std::string printed_value(const TrainFlags& flags) {
  ZERO_CHECK(flags.error.empty(), "{}; see zero_train --help", flags.error);
  const Configuration values = Configuration::read(flags.config, flags.overrides);
  const nlohmann::json value = values.at(canonical_path(flags.print_value)).value;
  if (value.is_null()) return "";
  return (value.is_string() ? value.get<std::string>() : value.dump()) + "\n";
}

PrintedPlan printed_plan(const TrainFlags& flags, int world) {
  TrainConfig config = configured_alone(flags, world);
  const BackendKind backend =
      backend_on(config.run.device, config, planned_backend(flags.start, world));
  const RankPlans plans = choose_recompute(config, backend);
  const Plan plan = make_plan(config, backend);
  PrintedPlan printed{.text = flags.json ? plan.json().dump(2) + "\n" : ""};
  if (!flags.json) {
    for (const std::string& line : config.warnings) printed.text += "warning: " + line + "\n";
    for (const auto& lines : {recompute_lines(config), tier_lines(config)}) {
      for (const std::string& line : lines) printed.text += line + "\n";
    }
    using enum LiveMemory::Labels;
    printed.text += plan.text(flags.labels ? all : largest, flags.schedule);
  }
  try {
    check_memory_limit(config, backend, plans);
  } catch (const Error& error) {
    printed.over_limit = error.what();
  }
  return printed;
}

}  // namespace zero
