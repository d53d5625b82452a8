// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#include "launch/simulate/simulate_program.h"

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cstring>
#include <fstream>
#include <utility>

#include "base/error.h"
#include "base/message_text.h"
#include "launch/simulate/simulation_report.h"

namespace zero {
namespace {

void write(const std::string& path, const std::string& text) {
  std::ofstream file(path, std::ios::binary | std::ios::trunc);
  file << text;
  file.close();
  ZERO_CHECK(file.good(),
             "run.trace: cannot write {}: {}; give the path of a file you may write to", path,
             std::strerror(errno));
}

}  // namespace

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
    std::string_view part = rest.substr(0, rest.find(','));
    rest.remove_prefix(std::min(part.size() + 1, rest.size()));
    if (part.starts_with(kRanks)) {
      part.remove_prefix(kRanks.size());
      const char* const behind = part.data() + part.size();
      const auto [end, error] = std::from_chars(part.data(), behind, flag.ranks);
      good = error == std::errc() && end == behind && flag.ranks >= 1 &&
             flag.ranks <= Machine::kMostInAll;
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
  Configuration values = Configuration::read(question.config, overrides, refusals);
  const TrainConfig config = config_on(machine, std::move(values), ranks, std::move(refusals));
  const Simulation simulation = simulate(config, machine);
  if (!simulation.trace.empty()) write(config.run.trace, simulation.trace);
  return question.json ? json_of(simulation).dump(2) + "\n" : text_of(simulation);
}

}  // namespace zero
