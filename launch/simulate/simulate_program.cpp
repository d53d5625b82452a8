// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#include "launch/simulate/simulate_program.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "base/error.h"
#include "base/message_text.h"
#include "base/whole_number.h"
#include "launch/data/new_file.h"
#include "launch/simulate/simulation_report.h"
#include "launch/train/memory_fit.h"

namespace zero {
namespace {

constexpr std::string_view kExample = "ranks=1024,cluster=cluster.json";

}  // namespace

TrainConfig config_on(const Machine& machine, Configuration values, int ranks, Refusals refusals) {
  const bool cpu = machine.kind == DeviceKind::cpu;
  const int of_host = std::min(ranks, machine.devices);
  if (values.is_null("run.device")) {
    values.resolve("run.device", cpu ? "cpu" : "cuda", "auto: the cluster's");
  }
  if (cpu && machine.times.cores > 0 && values.is_null("run.threads")) {
    values.resolve("run.threads", std::max(1, machine.times.cores / of_host),
                   "auto: the cores of the cluster's hosts / ranks of a host");
  }
  return make_train_config(std::move(values), ranks, of_host, std::move(refusals));
}

SimulateFlag SimulateFlag::from(std::string_view text) {
  SimulateFlag flag;
  for (std::string_view rest = text; !rest.empty();) {
    const std::string_view part = rest.substr(0, rest.find(','));
    rest.remove_prefix(std::min(part.size() + 1, rest.size()));
    const std::size_t equals = std::min(part.find('='), part.size());
    const std::string_view key = part.substr(0, equals);
    const std::string_view value = part.substr(std::min(equals + 1, part.size()));
    if (key == "cluster" && !value.empty()) {
      flag.cluster = value;
      continue;
    }
    const auto ranks = whole_number(value, 1, Machine::kMostInAll);
    ZERO_CHECK(key == "ranks" && ranks,
               "--simulate: found \"{}\", expected ranks=N (1 to {}) or cluster=FILE, as in {}",
               printable_line(part), Machine::kMostInAll, kExample);
    flag.ranks = *ranks;
  }
  ZERO_CHECK(!flag.cluster.empty(),
             "--simulate: found \"{}\" without cluster=FILE, expected as in {}",
             printable_line(text), kExample);
  return flag;
}

std::string simulated(const SimulateQuestion& question) {
  const SimulateFlag flag = SimulateFlag::from(question.simulate);
  const Machine machine = read_cluster(flag.cluster);
  check(machine);
  const int ranks = flag.ranks > 0 ? flag.ranks : machine.world();
  std::vector<std::string> overrides = question.overrides;
  if (!question.trace.empty()) {
    overrides.push_back("run.trace=" + nlohmann::json(question.trace).dump());
  }
  Refusals refusals;
  Configuration values = Configuration::read(question.config, overrides, refusals);
  TrainConfig config = config_on(machine, std::move(values), ranks, std::move(refusals));
  choose_recompute(config, machine.backend());
  const Simulation simulation = simulate(config, machine);
  try {
    if (!simulation.trace.empty()) write_whole_file(config.run.trace, simulation.trace);
  } catch (const Error& error) {
    fail("run.trace: {}", error.what());
  }
  return question.json ? json_of(simulation).dump(2) + "\n" : text_of(simulation);
}

}  // namespace zero
