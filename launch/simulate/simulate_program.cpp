// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#include "launch/simulate/simulate_program.h"

#include <algorithm>
#include <utility>

#include "base/error.h"
#include "base/message_text.h"
#include "base/whole_number.h"
#include "launch/data/new_file.h"
#include "launch/simulate/simulation.h"

namespace zero {
TrainConfig config_on(const Machine& machine, Configuration values, int ranks, Refusals refusals) {
  const bool cpu = machine.kind == DeviceKind::cpu;
  const int local_ranks = std::min(ranks, machine.devices);
  if (values.is_null("run.device")) {
    values.resolve("run.device", cpu ? "cpu" : "cuda", "auto: the cluster's");
  }
  if (cpu && machine.times.cores > 0 && values.is_null("run.threads")) {
    values.resolve("run.threads", std::max(1, machine.times.cores / local_ranks),
                   "auto: the cores of the cluster's hosts / ranks of a host");
  }
  return make_train_config(std::move(values), ranks, local_ranks, std::move(refusals));
}

SimulateFlag SimulateFlag::from(std::string_view text) {
  constexpr std::string_view kRanks = "ranks=";
  constexpr std::string_view kCluster = "cluster=";
  SimulateFlag flag;
  bool good = true;
  for (std::string_view rest = text; good && !rest.empty();) {
    const std::string_view part = rest.substr(0, rest.find(','));
    rest.remove_prefix(std::min(part.size() + 1, rest.size()));
    if (part.starts_with(kRanks)) {
      const auto ranks = whole_number(part.substr(kRanks.size()), 1, Machine::kMostInAll);
      good = ranks.has_value();
      flag.ranks = ranks.value_or(0);
    } else {
      good = flag.cluster.empty();
      flag.cluster = part.substr(part.starts_with(kCluster) ? kCluster.size() : 0);
    }
  }
  ZERO_CHECK(
      good && !flag.cluster.empty(),
      "--simulate: found \"{}\", expected a cluster file, or ranks=N,cluster=FILE with N from "
      "1 to {}",
      printable_line(text), Machine::kMostInAll);
  return flag;
}

std::string simulated(const SimulateQuestion& question) {
  const SimulateFlag flag = SimulateFlag::from(question.simulate);
  const Machine machine = read_cluster(flag.cluster, "--simulate");
  check(machine);
  const int ranks = flag.ranks > 0 ? flag.ranks : machine.world();
  std::vector<std::string> overrides = question.overrides;
  if (!question.trace.empty()) {
    overrides.push_back("run.trace=" + nlohmann::json(question.trace).dump());
  }
  Refusals refusals;
  Configuration values = Configuration::read(question.config, overrides, &refusals);
  const TrainConfig config = config_on(machine, std::move(values), ranks, std::move(refusals));
  const Simulation simulation = simulate(config, machine);
  try {
    if (!simulation.trace.empty()) write_whole_file(config.run.trace, simulation.trace);
  } catch (const Error& error) {
    fail("run.trace: {}", error.what());
  }
  return question.json ? json_of(simulation).dump(2) + "\n" : text_of(simulation);
}

}  // namespace zero
