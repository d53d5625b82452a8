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

/// The facts that decide run.device "auto".
struct DeviceFacts {
  int ranks = 1;           ///< of this host
  int gpus = 0;            ///< that this build can use and this process sees
  bool given_one = false;  ///< the launcher gave this process, one of the ranks, one GPU
};
enum class RanksAre : std::uint8_t { threads, processes };
/// `ranks` ranks of this host; a process with one GPU has it of CUDA_VISIBLE_DEVICES.
DeviceFacts device_facts(int ranks, RanksAre are);

/// The device that run.device "auto" stands for, and why: a GPU if each rank of the host has one,
/// or if this process was given one.
struct DeviceChoice {
  DeviceKind kind = DeviceKind::cpu;
  std::string why;
};
DeviceChoice choose_device(const DeviceFacts& facts);

/// Whether GPUs of several processes can talk.
enum class NcclSupport : std::uint8_t { built_in, missing };
NcclSupport nccl_support();

/// Makes "auto", for which each rank has put its own choice into `values`, stand for the CPU on all
/// ranks if they cannot all compute on GPUs: two ranks would share one (a launcher, or a shell's
/// start-up file, may give all processes the same one), a rank has none, or the build has no NCCL.
/// Every rank is then given a line for people. Collective.
std::optional<std::string> agree_on_device(Communicator& host, Configuration& values,
                                           NcclSupport nccl = nccl_support());

/// The backend of the communicator of a run on `kind` whose ranks meet through `host`
/// ("mpi", "local", ...): for plans.
std::string_view backend_on(DeviceKind kind, const TrainConfig& config, std::string_view host);

/// A device without memory that stands for the run's, whose memory is `memory` if it is a CPU's.
std::unique_ptr<Device> plan_device(const TrainConfig& config, Memory memory = Memory::of_host);

/// The limits that a profile of the run compares with: measured on `device`, the run's, with its
/// streams at rest.
MachineLimits limits_of(const TrainConfig& config, Device& device);

/// The device of one rank of a run, and the communicator whose collectives reach its memory.
class RunDevice {
 public:
  /// `host`: how the ranks met; its rank on its host is the number of its GPU, unless its process
  /// sees one GPU alone. Ranks that are threads of one process share its first GPU if there are
  /// fewer GPUs than ranks. `instruments`, which must outlive this, may be null. Collective. Throws
  /// zero::Error if there is no such device, if two processes have one GPU, or if NCCL,
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
