// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>

#include "collectives/communicator.h"
#include "device/memory_ledger.h"
#include "launch/train_config.h"

namespace zero {

using MemoryByClass = std::array<std::int64_t, kMemoryClasses>;

/// The bytes per class that a rank of a world will use, from the same code a run executes, on a
/// device without memory; `memory` is where the run's device has its own.
MemoryByClass plan_memory(const TrainConfig& config, int rank, int world, std::string_view backend,
                          Memory memory = Memory::of_host);

/// Planned and used bytes of the largest rank, per class.
struct MemoryReport {
  MemoryByClass planned{};
  MemoryByClass peak{};
  bool exact = true;                   ///< every rank used what was planned, in every class
  std::int64_t model_state_bytes = 0;  ///< parameters + gradients + optimizer of the largest rank

  /// {class: {"planned": bytes, "peak": bytes}}
  nlohmann::json json() const;
  /// A table for people.
  std::string table() const;
};

/// parameters + gradients + optimizer.
std::int64_t model_state_bytes(const MemoryByClass& bytes);

/// Merges all ranks' figures. Collective; blocks the host.
MemoryReport merge_memory(Communicator& communicator, Device& device, const MemoryByClass& planned,
                          const MemoryByClass& peak);

}  // namespace zero
