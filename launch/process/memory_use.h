// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>

#include "collectives/communicator.h"
#include "device/device.h"
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

/// A device without memory that replaces the run's in a plan; `memory` is the memory of a CPU's.
std::unique_ptr<Device> plan_device(const TrainConfig& config, Memory memory = Memory::of_host);

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

}  // namespace zero
