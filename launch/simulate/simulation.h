// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "launch/plan/machine.h"
#include "launch/simulate/goodput.h"
#include "launch/simulate/link_times.h"
#include "launch/simulate/rank_times.h"
#include "launch/train/plan.h"

namespace zero {

class Instruments;
struct TrainConfig;

/// One optimizer step of a rank that stands for all ranks like it.
struct SimulatedRank {
  int rank = 0;
  int stands_for = 1;  ///< ranks whose slices along the tensor axis have the same sizes
  double step_seconds = 0;
  RankTimes::Totals compute{};  ///< work of the compute stream
  double exposed_seconds = 0;   ///< compute waited for collectives: as the engine reports
  std::map<std::string, double> exposed{};  ///< the same by kind of unit: "h.*", "the boundary"
  LinkTimes::Totals collectives{};          ///< seconds of collectives by level
  MeshTraffic traffic{};                    ///< bytes sent, by axis
  MemoryUse memory{};

  double collective_seconds() const;
  /// Of the step: neither work nor waits of the compute stream. The host's submissions, and compute
  /// that collectives slow down.
  double other_seconds() const;
};

/// What a run would be on a machine.
struct Simulation {
  Machine machine;  ///< the hosts that are used
  int stage = 0;
  MeshShape mesh;
  BackendKind backend = BackendKind::local;
  double step_seconds = 0;
  double tokens = 0;      ///< of a step
  double flop_share = 0;  ///< FLOP of a step, without recompute, over what all devices' peaks allow
  std::vector<SimulatedRank> ranks{};  ///< the slowest first
  std::int64_t bytes = 0;              ///< of the fullest of them, as a limit of memory bounds it
  std::string limited_by{};            ///< "products", "links between hosts", ...
  std::optional<Failures> failures{};
  std::string trace{};  ///< a document for Perfetto; empty: not asked for

  const SimulatedRank& slowest() const { return ranks.front(); }
  double tokens_per_second() const { return tokens / step_seconds; }
};

/// Runs two optimizer steps of `config`, for a world that `machine` has, on a virtual clock and
/// reports the second: the engine, schedule and collectives of the run itself. One rank of each
/// kind is simulated: data-parallel ranks are alike, tensor ranks if their slices have equal sizes.
/// `config` computes on the machine's kind of device; recompute "auto" is chosen as the run does.
/// Throws zero::Error, naming the file of the machine and the key, if the machine lacks a figure.
Simulation simulate(const TrainConfig& config, const Machine& machine);

/// The simulated step for people: time, FLOP share, exposed communication, bytes, memory, goodput.
std::string text_of(const Simulation& simulation);
/// The same for programs; times in seconds.
nlohmann::ordered_json json_of(const Simulation& simulation);

}  // namespace zero
