// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "collectives/communicator.h"
#include "collectives/listener.h"

namespace zero {

class Configuration;
class FaultInjector;
class Instruments;
struct MachineLimits;
struct TrainConfig;

/// Whether GPUs of several processes can communicate.
enum class NcclSupport : std::uint8_t { built_in, missing };
NcclSupport nccl_support();

/// Resolves run.device "auto", for which each rank has put its own choice into `values`. If the
/// ranks cannot all compute on GPUs, all use the CPU: if two ranks would share a GPU (a launcher,
/// or a shell's start-up file, may give all processes the same one), a rank has none, or the build
/// has no NCCL or no code for a rank's GPU. Every rank then gets a line for people; nothing
/// otherwise. Collective.
std::optional<std::string> agree_on_device(Communicator& host, Configuration& values,
                                           NcclSupport nccl = nccl_support());

/// The backend of the communicator of a run on `kind`, for plans; `host` is the backend through
/// which its ranks meet.
BackendKind backend_on(DeviceKind kind, const TrainConfig& config, BackendKind host);

/// The machine's limits for the profile of a run, measured on `device`, the run's device, with idle
/// streams.
MachineLimits limits_of(const TrainConfig& config, Device& device);

/// The device of one rank of a run, and a communicator whose collectives reach the device's memory.
class RunDevice {
 public:
  /// `host` is the communicator through which the ranks met. A rank takes the GPU with its number
  /// on its host, unless its process sees only one GPU. Ranks that are threads of one process share
  /// its first GPU if there are fewer GPUs than ranks. `instruments`, which must outlive this
  /// object, may be null. Collective. Throws zero::Error if there is no such device, if two
  /// processes have the same GPU, or if NCCL, which processes with GPUs need, is missing or fails.
  RunDevice(const TrainConfig& config, Communicator& host, Instruments* instruments);

  Device& device() { return *device_; }
  Communicator& world() { return checked_ ? *checked_ : unchecked(); }
  /// Lets `faults`, which must outlive this object, act on the collectives of world() and its
  /// splits before any other listener hears of them; checks of collectives see what faults alter.
  /// Call before world() is used.
  void attach(FaultInjector& faults);

 private:
  Communicator& unchecked() { return faulty_ ? *faulty_ : gpus_ ? *gpus_ : host_; }

  Communicator& host_;
  std::unique_ptr<Device> device_;
  std::unique_ptr<Communicator> gpus_;     // NCCL's; null if host_ reaches the device's memory
  std::unique_ptr<Communicator> faulty_;   // on the backend of the others; null: none fails
  std::unique_ptr<Communicator> checked_;  // with run.check_collectives; else null
  std::optional<Listening> faults_{};
};

}  // namespace zero
