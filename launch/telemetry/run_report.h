// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <span>
#include <string>
#include <vector>

#include "collectives/communicator.h"
#include "collectives/mesh.h"
#include "device/device.h"
#include "engine/engine.h"
#include "engine/schedule.h"
#include "launch/config/train_config.h"

namespace zero {

/// The peak memory of a rank.
struct MemoryUse {
  BytesByClass ledger{};  ///< bytes requested, including the host's memory
  DeviceBytes device{};   ///< the device bytes behind the ledger, if the device has its own memory

  static MemoryUse of(Device& device);
  /// The larger value in each figure.
  MemoryUse larger(const MemoryUse& other) const;
  friend bool operator==(const MemoryUse&, const MemoryUse&) = default;
};

/// The memory that a rank of a world will use, found by running the run's own code on a device
/// without memory; `memory` tells where the run's device has its memory.
MemoryUse plan_memory(const TrainConfig& config, int rank, int world, BackendKind backend,
                      Memory memory = Memory::of_host);

/// "device" in a plan and a log: {"arenas": {class: bytes}, "adopted": bytes, "pages": bytes}.
nlohmann::json device_json(const DeviceBytes& bytes);

/// Planned and used bytes of the largest rank.
struct MemoryReport {
  MemoryUse planned{};
  MemoryUse used{};
  bool exact = true;                   ///< every rank used exactly the planned bytes
  std::int64_t model_state_bytes = 0;  ///< parameters + gradients + optimizer of the largest rank

  /// {class: {"planned": bytes, "peak": bytes}}
  nlohmann::json json() const;
  /// A table for people.
  std::string table() const;
};

/// parameters + gradients + optimizer.
std::int64_t model_state_bytes(const BytesByClass& bytes);

/// Merges the figures of all ranks. Collective; blocks the host.
MemoryReport merge_memory(Communicator& communicator, Device& device, const MemoryUse& planned,
                          const MemoryUse& used);

/// The graphs that a GPU has captured by the end of a run, or why there are none, for people.
std::string graphs_text(const CaptureCounts& captured, const TrainConfig& config);
/// The same for the log.
nlohmann::ordered_json graphs_json(const CaptureCounts& captured, const TrainConfig& config);

/// Exposed communication of one rank in seconds: per unit, and at the boundary (the global norm).
class ExposedUnits {
 public:
  ExposedUnits(std::vector<std::string> units, const Schedule& schedule);

  /// Call after a step: `by_use` has seconds per compute step of the schedule, `total` of the step.
  void add(std::span<const double> by_use, double total);
  /// "exposed communication: 12.30 ms a step, most of it at h.3: 5.00 ms"; empty before a step and
  /// if nothing was exposed.
  std::string summary() const;

 private:
  std::vector<std::string> places_;  ///< the units, then the boundary
  std::vector<int> units_;           ///< per compute step
  std::vector<double> seconds_;      ///< per place
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
