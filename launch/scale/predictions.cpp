// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0

// The points of a sweep on a cluster that is not at hand.
#include <algorithm>
#include <utility>

#include "base/error.h"
#include "base/message_text.h"
#include "launch/scale/scale_report.h"
#include "launch/simulate/simulate_program.h"

namespace zero {
namespace {

/// Refuses hosts that take other ranks of the point than the cluster's: both fill one before the
/// next, and a prediction of other links would stand beside what is measured.
void check_place(const std::string& path, const Machine& machine, const ScalePoint& point,
                 const Launcher& launcher) {
  int left = point.world;
  for (const RankHost& host : launcher.placement(point.world)) {
    const int expected = std::min(left, machine.devices);
    ZERO_CHECK(host.ranks == expected,
               "--simulate {}: of {}, {} takes {}, and a host of the file, with {}, {}; {}", path,
               counted(point.world, "rank"), host.name.empty() ? "this host" : host.name,
               host.ranks, counted(machine.devices, "device"), expected,
               launcher.hosts.empty()
                   ? "name the hosts (--hosts or --hostfile), or measure nothing: --repeats 0"
                   : "give --hosts or --hostfile as many ranks a host as the file has devices");
    left -= expected;
  }
}

}  // namespace

Machine cluster_of_sweep(const std::string& path, const Sweep& sweep,
                         const std::vector<ScalePoint>& points, const Launcher& launcher,
                         int repeats) {
  Machine machine = read_cluster(path, "--simulate");
  check(machine);
  const bool gpus = machine.kind == DeviceKind::cuda;
  ZERO_CHECK(machine.kind == sweep.device,
             "--simulate {}: kind is {}, expected that of --device {}; {} --device cuda", path,
             gpus ? "gpu" : "cpu", gpus ? "cpu" : "cuda", gpus ? "add" : "leave out");
  for (const ScalePoint& point : points) {
    ZERO_CHECK(point.world <= machine.world(),
               "--simulate {}: {}, expected at least the {} of --worlds; raise hosts in the file, "
               "or leave worlds above {} out",
               path, counted(machine.world(), "device"), counted(point.world, "rank"),
               machine.world());
    if (repeats > 0 || !launcher.hosts.empty()) check_place(path, machine, point, launcher);
  }
  return machine;
}

Predictions predict(const Sweep& sweep, const std::vector<ScalePoint>& points,
                    const Machine& machine) {
  Predictions all;
  for (const ScalePoint& point : points) {
    const nlohmann::json file = sweep.configuration(point, "tokens.bin", "run.log");
    Configuration values = Configuration::from_json(file, point.name(), sweep.overrides);
    all.emplace(point.name(),
                simulate(config_on(machine, std::move(values), point.world), machine));
  }
  return all;
}

}  // namespace zero
