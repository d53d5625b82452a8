// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>

#include "collectives/communicator.h"
#include "device/device.h"
#include "launch/config/train_config.h"

namespace zero {

/// The most memory that a rank has at a time.
struct MemoryUse {
  BytesByClass ledger{};  ///< asked for, of the host's memory too
  DeviceBytes device{};   ///< what its device has to have for that, where it has memory of its own

  static MemoryUse of(Device& device);
  /// In each figure the larger.
  MemoryUse larger(const MemoryUse& other) const;
  friend bool operator==(const MemoryUse&, const MemoryUse&) = default;
};

/// What a rank of a world will use, from the same code a run executes, on a device without memory;
/// `memory` is where the run's device has its own.
MemoryUse plan_memory(const TrainConfig& config, int rank, int world, std::string_view backend,
                      Memory memory = Memory::of_host);

/// "device" in a plan and in a log: {"arenas": {class: bytes}, "adopted": bytes, "pages": bytes}.
nlohmann::json device_json(const DeviceBytes& bytes);

/// Planned and used bytes of the largest rank.
struct MemoryReport {
  MemoryUse planned{};
  MemoryUse used{};
  bool exact = true;                   ///< every rank used what was planned, in every figure
  std::int64_t model_state_bytes = 0;  ///< parameters + gradients + optimizer of the largest rank

  /// {class: {"planned": bytes, "peak": bytes}}
  nlohmann::json json() const;
  /// A table for people.
  std::string table() const;
};

/// parameters + gradients + optimizer.
std::int64_t model_state_bytes(const BytesByClass& bytes);

/// Merges all ranks' figures. Collective; blocks the host.
MemoryReport merge_memory(Communicator& communicator, Device& device, const MemoryUse& planned,
                          const MemoryUse& used);

}  // namespace zero
