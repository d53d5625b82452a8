// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <functional>
#include <string>
#include <vector>

#include "collectives/communicator.h"
#include "device/device.h"
#include "launch/rendezvous/start.h"

namespace zero {

/// What is to be checked before the first run on some hosts.
struct PreflightQuestion {
  DeviceKind device = DeviceKind::cpu;
  int hosts = 0;                      ///< that are expected; 0: any
  std::string folder{};               ///< that all hosts must see; empty: not checked
  std::chrono::seconds patience{60};  ///< for a rank that does not come
  /// This host's clock.
  std::function<std::chrono::system_clock::time_point()> clock = std::chrono::system_clock::now;
};

/// The outcome of one check.
struct PreflightLine {
  bool ok = true;
  std::string name;  ///< "clocks"
  std::string text;  ///< what was found; if it is wrong, with what is expected and what to do

  /// "ok    clocks: ..." or "WRONG clocks: ...".
  std::string shown() const;
};

/// Checks versions, GPUs, limits, addresses, ports, clocks, the folder and each link between the
/// hosts of `ranks`; links of GPUs through NCCL, those of CPUs through `ranks`. The same on all
/// ranks. Collective.
std::vector<PreflightLine> preflight(Communicator& ranks, const PreflightQuestion& question);

/// preflight() as the rank or ranks of this process. The first rank prints the lines. 1 if any is
/// wrong.
int run_preflight(const Start& start, const PreflightQuestion& question, int* argc, char*** argv);

}  // namespace zero
