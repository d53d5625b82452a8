// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <deque>
#include <nlohmann/json.hpp>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "collectives/listener.h"

namespace zero {

struct CaptureCounts;
struct MeshShape;
struct Schedule;
struct TrainConfig;

/// The graphs that a GPU has captured by the end of a run, or why there are none, for people.
std::string graphs_text(const CaptureCounts& captured, const TrainConfig& config);
/// The same for the log.
nlohmann::ordered_json graphs_json(const CaptureCounts& captured, const TrainConfig& config);

/// Time that a rank's collectives take on their stream, waits for other ranks included. Used by the
/// host thread that issues them.
class CommunicationTime final : public CollectiveListener {
 public:
  bool listens() const noexcept override { return true; }
  void collective(const CollectiveRecord& record, Mark begin, Mark end) noexcept override;

  /// Seconds of the collectives that have ended and were in no earlier call's sum. Never blocks.
  double take();

 private:
  std::deque<std::pair<Mark, Mark>> running_;  // begin and end, in order
};

/// Communication of one rank in seconds: the part that compute waited for, per unit and at the
/// boundary (the global norm), and the part hidden behind compute.
class ExposedUnits {
 public:
  ExposedUnits(std::vector<std::string> units, const Schedule& schedule);

  /// Call after a step: `by_use` has exposed seconds per compute step of the schedule, `total` of
  /// the step; `communication` those of its collectives.
  void add(std::span<const double> by_use, double total, double communication);
  /// "exposed communication: 12.30 ms a step, most of it at h.3: 5.00 ms; hidden: 80 % of 61.50
  /// ms"; what was not measured is left out.
  std::string summary() const;
  /// Means of a step: {"seconds": collectives, "exposed_seconds": ..., "hidden_share": 0 to 1}.
  nlohmann::ordered_json json() const;

 private:
  double exposed() const;       ///< of all steps
  double hidden_share() const;  ///< of all communication

  std::vector<std::string> places_;  ///< the units, then the boundary
  std::vector<int> units_;           ///< per compute step
  std::vector<double> seconds_;      ///< per place
  double communication_ = 0;
  int steps_ = 0;
};

/// Text about the mesh: the host of each rank, and warnings about axes that cross hosts.
struct MeshTable {
  std::string text;                   ///< empty if the mesh has only the shard axis
  std::vector<std::string> warnings;  ///< about tensor groups that cross hosts
};

/// The table for ranks whose hosts are hosts[rank].
MeshTable mesh_table(const MeshShape& shape, const std::vector<std::string>& hosts);

}  // namespace zero
