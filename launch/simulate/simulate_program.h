// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "launch/config/configuration.h"
#include "launch/config/train_config.h"
#include "launch/plan/machine.h"

namespace zero {

/// The value of --simulate: "cluster.json", or "ranks=1024,cluster=cluster.json".
struct SimulateFlag {
  int ranks = 0;  ///< 0: all devices of the cluster
  std::string cluster;

  /// Throws zero::Error with found and expected.
  static SimulateFlag from(std::string_view text);
};

struct SimulateQuestion {
  std::string config{};                  ///< path
  std::vector<std::string> overrides{};  ///< key=value
  std::string simulate{};                ///< as SimulateFlag::from takes it
  std::string trace{};                   ///< overrides run.trace; empty: does not
  bool json = false;
};

/// The configuration of a run of `ranks` ranks on a machine, whose device and threads it has where
/// `values` leaves them open.
TrainConfig config_on(const Machine& machine, Configuration values, int ranks,
                      Refusals refusals = {});

/// The answer to --simulate. Writes the trace, if one is asked for. Throws zero::Error.
std::string simulated(const SimulateQuestion& question);

}  // namespace zero
