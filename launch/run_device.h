// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "collectives/communicator.h"
#include "launch/config/train_config.h"
#include "launch/telemetry/instruments.h"

namespace zero {

/// What run.device "auto" goes by.
struct DeviceFacts {
  int ranks = 1;           ///< of this host
  int gpus = 0;            ///< that this build can use and this process sees
  bool given_one = false;  ///< whoever started this process, one of the ranks, gave it one GPU
};
enum class RanksAre : std::uint8_t { threads, processes };
/// `ranks` ranks of this host; a process with one GPU has it of CUDA_VISIBLE_DEVICES.
DeviceFacts device_facts(int ranks, RanksAre are);

/// What run.device "auto" stands for, and why: a GPU where there is one for each rank of the host,
/// or where this process was given one.
struct DeviceChoice {
  DeviceKind kind = DeviceKind::cpu;
  std::string why;
};
DeviceChoice choose_device(const DeviceFacts& facts);

/// Has "auto", for which each rank has put its own choice into `values`, stand for the CPU on all
/// ranks where two of them would compute on one GPU: a launcher, or a shell's start-up file, may
/// give all processes the same one. Every rank is then given a line for people. Collective.
std::optional<std::string> agree_on_device(Communicator& host, Configuration& values);

/// The backend whose communicator a run on `kind` has, where its ranks meet through `host`
/// ("mpi", "local", ...): for plans.
std::string_view backend_on(DeviceKind kind, const TrainConfig& config, std::string_view host);

/// A device without memory that stands for the run's, whose memory is `memory` if it is a CPU's.
std::unique_ptr<Device> plan_device(const TrainConfig& config, Memory memory = Memory::of_host);

/// What a profile of the run holds its work against: measured on `device`, the run's, now, with its
/// streams at rest.
MachineLimits limits_of(const TrainConfig& config, Device& device);

/// What one rank of a run computes on, and the communicator whose collectives reach its memory.
class RunDevice {
 public:
  /// `host`: how the ranks met; its rank on its host is the number of its GPU, unless its process
  /// sees one GPU alone. Ranks that are threads of one process share its first GPU where there are
  /// fewer GPUs than ranks. `instruments`, which must outlive this, may be null. Collective. Throws
  /// zero::Error where there is no such device, where two processes have one GPU, or where NCCL,
  /// which processes with GPUs need, is missing or fails.
  RunDevice(const TrainConfig& config, Communicator& host, Instruments* instruments);

  Device& device() { return *device_; }
  Communicator& world() { return gpus_ ? *gpus_ : host_; }

 private:
  Communicator& host_;
  std::unique_ptr<Device> device_;
  std::unique_ptr<Communicator> gpus_;  // NCCL's; null: host_ reaches the device's memory
};

}  // namespace zero
