// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "device/cuda/gpus.h"
#include "device/device.h"

namespace zero {

class Configuration;

/// The facts that decide run.device "auto".
struct DeviceFacts {
  int ranks = 1;           ///< on this host
  int gpus = 0;            ///< visible to this process
  bool given_one = false;  ///< the launcher gave this process (one of the ranks) exactly one GPU
  /// Why this build cannot compute on the GPUs that the ranks would take; empty if it can.
  std::optional<cuda::MissingCode> missing{};
};
enum class RanksAre : std::uint8_t { threads, processes };
/// The facts for `ranks` ranks of this host. CUDA_VISIBLE_DEVICES tells if a process has one GPU.
DeviceFacts device_facts(int ranks, RanksAre are);

/// The device that run.device "auto" selects, and the reason: a GPU if each rank of the host has
/// one, or if this process was given one, and the build has code for them.
struct DeviceChoice {
  DeviceKind kind = DeviceKind::cpu;
  std::string why;
};
DeviceChoice choose_device(const DeviceFacts& facts);

/// Resolves run.device "auto" to the choice of this process, for `ranks` ranks of its host.
void resolve_device(Configuration& values, int ranks, RanksAre are);

}  // namespace zero
