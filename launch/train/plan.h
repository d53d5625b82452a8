// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "device/device.h"
#include "device/planning/clock.h"
#include "engine/counted_mesh.h"
#include "launch/train/live_memory.h"

namespace zero {

class TrainingState;
struct Schedule;
struct ScheduleLimits;
struct TrainConfig;

/// The peak memory of a rank.
struct MemoryUse {
  BytesByClass ledger{};  ///< bytes requested, including the host's memory
  DeviceBytes device{};   ///< the device bytes behind the ledger, if the device has its own memory
  BytesByClass file{};    ///< bytes of files that stand in for memory, beside the ledger
  std::int64_t host = 0;  ///< of the ledger, in host memory beside a device's (pinned)

  static MemoryUse of(Device& device);
  /// The larger value in each figure.
  MemoryUse larger(const MemoryUse& other) const;
  /// The bytes that run.memory_limit bounds: of a GPU in whole pages, of a CPU all classes.
  std::int64_t bounded() const;
  /// Bytes of the host's memory: of a CPU all classes.
  std::int64_t on_host() const { return device.in_pages() > 0 ? host : sum_of(ledger); }
  friend bool operator==(const MemoryUse&, const MemoryUse&) = default;
};

/// A device without memory that replaces the run's in a plan; `memory` is the memory of a CPU's.
std::unique_ptr<Device> plan_device(const TrainConfig& config,
                                    MemorySpace memory = MemorySpace::host,
                                    const planning::ClockOptions& clock = {});

/// The memory that a rank of a world will use, found by running the run's own code on a device
/// without memory; `memory` tells where the run's device has its memory.
MemoryUse plan_memory(const TrainConfig& config, int rank, int world, BackendKind backend,
                      MemorySpace memory = MemorySpace::host);

/// {class: bytes} of the classes with bytes; "file" in a plan and a log.
nlohmann::json listed_json(const BytesByClass& bytes);
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

/// The memory and traffic of a run, computed without training or allocating.
struct Plan {
  int world = 1;
  int stage = 0;
  MemoryUse memory;     ///< each figure is the largest of all ranks'
  LiveMemory live;      ///< of the rank with the most planned bytes
  MeshTraffic traffic;  ///< bytes the first rank sends in a step, by axis
  std::int64_t parameters = 0;
  std::int64_t padding = 0;
  std::int64_t peak_live_elements = 0;
  std::string live_limit;    ///< live_limit_line()
  std::int64_t gathers = 0;  ///< per micro-batch
  std::uint64_t schedule_hash = 0;
  std::vector<std::string> schedule;  ///< one line per action
  MeshShape mesh;
  std::int64_t flight_file = 0;  ///< its bytes, mapped by all ranks of a host, beside `memory`
  std::string recompute;         ///< what backward computes again, by block
  bool keeps_outputs = false;    ///< of norms and GELU, for backward
  std::string ownership;  ///< the part of every parameter on each axis; empty if there is one axis

  nlohmann::json json() const;
  /// For people; `with_schedule`: each action of it too.
  std::string text(LiveMemory::Labels labels = LiveMemory::Labels::largest,
                   bool with_schedule = false) const;

 private:
  std::string memory_text() const;
};

/// The ranks whose memory stands for that of all. Shards are equal, so ranks differ only by uneven
/// slices of the tensor axis: one rank of each tensor index and the last rank suffice; a small
/// world is planned whole.
std::vector<int> planned_ranks(const TrainConfig& config);

/// Their memory, by rank.
using RankPlans = std::map<int, MemoryUse>;
RankPlans plan_ranks(const TrainConfig& config, BackendKind backend);

/// The live bytes of a rank's step beside all that plan_memory() finds allocated; arguments as
/// there.
LiveMemory plan_live(const TrainConfig& config, int rank, int world, BackendKind backend,
                     MemorySpace memory = MemorySpace::host);

/// Bytes that the rank of `state` sends in a step of so many micro-batches.
MeshTraffic step_traffic(TrainingState& state, std::int64_t micro_batches);

/// Plans `config` for its world.
Plan make_plan(const TrainConfig& config, BackendKind backend);

/// {"replicate": ..., "shard": ..., "tensor": ...}
nlohmann::json mesh_json(const MeshShape& mesh);
/// {"all_gather_bytes": ..., "reduce_scatter_bytes": ..., "all_reduce_bytes": ...}
nlohmann::json traffic_json(const TrafficCounter& traffic);
/// {axis: traffic_json} for the axes of several ranks, and "across" for calls over several axes.
nlohmann::json axes_json(const MeshTraffic& traffic, const MeshShape& mesh);
/// For people: by operation, and by axis unless all ranks are along the shard axis.
std::string traffic_text(const MeshTraffic& traffic, const MeshShape& mesh);
/// A line for people if stage3_max_live_parameters matters to `schedule`, made with `limits`: if
/// more is gathered at once than DeepSpeed's default because the key is not given, or if the value
/// given is what keeps units from being gathered ahead. Else empty.
std::string live_limit_line(const Schedule& schedule, const ScheduleLimits& limits);

}  // namespace zero
