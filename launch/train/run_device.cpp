// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#include "launch/train/run_device.h"

#include <fmt/format.h>

#include <algorithm>
#include <vector>

#include "base/host.h"
#include "collectives/agreement.h"
#include "collectives/backends.h"
#include "collectives/checked_backend.h"
#include "collectives/host_values.h"
#include "collectives/nccl/options.h"
#include "device/cuda/gpus.h"
#include "files/disk_calls.h"
#include "launch/config/train_config.h"
#include "launch/faults/faulty_backend.h"
#include "launch/telemetry/instruments.h"
#include "launch/train/plan.h"

namespace zero {
namespace {

/// Ranks that are threads may share a GPU and meet in their process; NCCL needs a GPU for each.
bool share_a_gpu(BackendKind host, int ranks) {
  return host == BackendKind::local && cuda::visible_devices() < ranks;
}

/// The name of a GPU, unique in the world.
std::string gpu_text(int index) {
  return fmt::format("{} of {}", cuda::uuid_of(index), host_name());
}

/// "ranks 0 and 1 are both on GPU-...": the first two ranks with the same GPU; nothing if all
/// differ. The text of a rank without a GPU is empty.
std::optional<std::string> shared_gpu(const std::vector<std::string>& gpus) {
  for (auto one = gpus.begin(); one != gpus.end(); ++one) {
    const auto first = std::find(gpus.begin(), one, *one);
    if (one->empty() || first == one) continue;
    return fmt::format("ranks {} and {} are both on {}", first - gpus.begin(), one - gpus.begin(),
                       *one);
  }
  return std::nullopt;
}

constexpr std::string_view kGiveOwnGpus =
    "start no more ranks on a host than it has GPUs and let every process see all of them "
    "(srun --gpus-per-node=N --gpu-bind=none, without CUDA_VISIBLE_DEVICES) or one of its own";

/// Throws if two ranks share a GPU. Call before ranks allocate on their GPUs. Collective.
void require_own_gpus(Communicator& host, const std::string& mine) {
  if (const auto shared = shared_gpu(all_gather_texts(host, *cpu::open(), mine, "run.device"))) {
    throw AgreedError(
        fmt::format("run.device is \"cuda\", and {}; {}, or compute with run.device=cpu", *shared,
                    kGiveOwnGpus));
  }
}

constexpr std::string_view kNoGpu = "-";

/// The GPU that "auto" selects for this rank, or kNoGpu; empty if the user chose the device, or if
/// there is no such GPU, which RunDevice reports.
std::string gpu_of_auto(const Communicator& host, const Configuration& values) {
  if (!chosen_by_auto(values)) return "";
  if (values.text("run.device") != "cuda") return std::string(kNoGpu);
  try {
    return gpu_text(cuda::index_of_rank(host.local_rank()));
  } catch (const Error&) {
    return "";
  }
}

/// Why this build cannot compute on the GPU that "auto" looked at for this rank, a line, and the
/// remedy, another; empty if it can, or if the user chose the device.
std::string missing_code_of_auto(const Communicator& host, const Configuration& values) {
  if (!chosen_by_auto(values)) return "";
  try {
    const auto missing = cuda::missing_code(cuda::index_of_rank(host.local_rank()));
    return missing ? missing->why + '\n' + missing->remedy : "";
  } catch (const Error&) {
    return "";
  }
}

/// The reason why the ranks cannot compute on the GPUs that "auto" found, and the remedy.
struct Obstacle {
  std::string why;
  std::string remedy;
};

std::optional<Obstacle> missing_code(const std::vector<std::string>& texts) {
  const auto found = std::ranges::find_if(texts, [](const auto& text) { return !text.empty(); });
  if (found == texts.end()) return std::nullopt;
  const std::size_t end = found->find('\n');
  return Obstacle{found->substr(0, end), found->substr(end + 1)};
}

std::optional<Obstacle> obstacle(const Communicator& host, const std::vector<std::string>& gpus,
                                 NcclSupport nccl) {
  std::vector<std::string> taken = gpus;
  std::ranges::replace(taken, kNoGpu, "");
  if (const auto shared = shared_gpu(taken)) return Obstacle{*shared, std::string(kGiveOwnGpus)};
  const auto with =
      std::ranges::find_if(taken, [](const std::string& gpu) { return !gpu.empty(); });
  if (with == taken.end()) return std::nullopt;
  const auto without = std::ranges::find(gpus, kNoGpu);
  if (without != gpus.end()) {
    return Obstacle{fmt::format("rank {} has {}, rank {} has no GPU of its own",
                                with - taken.begin(), *with, without - gpus.begin()),
                    "start the ranks on hosts that have one for each of theirs"};
  }
  if (nccl == NcclSupport::built_in || host.size() == 1 ||
      share_a_gpu(host.backend(), host.size())) {
    return std::nullopt;
  }
  return Obstacle{fmt::format("this build has no NCCL, through which {} GPUs talk", host.size()),
                  "launch/install_cuda.sh brings NCCL; configure with -DZERO_CUDA=ON"};
}

}  // namespace

NcclSupport nccl_support() {
  return nccl::available() ? NcclSupport::built_in : NcclSupport::missing;
}

std::optional<std::string> agree_on_device(Communicator& host, Configuration& values,
                                           NcclSupport nccl) {
  const auto gather = [&](const std::string& text) {
    return all_gather_texts(host, *cpu::open(), text, "run.device");
  };
  auto found = missing_code(gather(missing_code_of_auto(host, values)));
  if (!found) found = obstacle(host, gather(gpu_of_auto(host, values)), nccl);
  if (!found) return std::nullopt;
  if (chosen_by_auto(values) && values.text("run.device") == "cuda") {
    values.resolve("run.device", "cpu", "auto: " + found->why);
  }
  return fmt::format(
      "run.device is \"auto\", and {}: all ranks compute on the CPU; for GPUs {}; "
      "run.device=cpu leaves this line out",
      found->why, found->remedy);
}

BackendKind backend_on(DeviceKind kind, const TrainConfig& config, BackendKind host) {
  if (kind == DeviceKind::cpu || config.world == 1 || share_a_gpu(host, config.world)) return host;
  return config.run.sums == nccl::Sums::fast ? BackendKind::nccl_fast : BackendKind::nccl;
}

MachineLimits limits_of(const TrainConfig& config, Device& device) {
  if (config.run.device == DeviceKind::cpu) {
    return measure_limits(config.engine.compute, config.run.threads);
  }
  return measure_limits(config.engine.compute, device);
}

RunDevice::RunDevice(const TrainConfig& config, Communicator& host, Instruments* instruments)
    : host_(host) {
  if (config.run.device == DeviceKind::cpu) {
    device_ = cpu::open({.threads = config.run.threads});
    device_->compute().listen(instruments);
    if (config.run.check_collectives) {
      checked_ = std::make_unique<Communicator>(checked_backend(host, host_name()));
    }
    return;
  }
  const bool shared = share_a_gpu(host.backend(), host.size());
  int index = 0;
  std::string mine;
  // The driver and NCCL take seconds to start, and give no sign of life.
  agree(host, *cpu::open(), "run.device", [&] {
    const files::DiskCall counted;
    if (!shared) index = cuda::index_of_rank(host.local_rank());
    mine = gpu_text(index);
    ZERO_CHECK(host.size() == 1 || shared || nccl::available(),
               "run.device is \"cuda\", and this build has no NCCL, through which {} GPUs talk: {}",
               host.size(), nccl::version());
  });
  if (!shared) require_own_gpus(host, mine);
  agree(host, *cpu::open(), "run.device", [&] {
    const BackendKind backend = backend_on(DeviceKind::cuda, config, host.backend());
    const MemoryUse planned =
        plan_memory(config, host.rank(), host.size(), backend, MemorySpace::device);
    const files::DiskCall counted;
    device_ = cuda::open({.index = index, .reserve = planned.device.arenas});
  });
  device_->compute().listen(instruments);
  if (host.size() == 1 || shared) return;
  const files::DiskCall counted;
  gpus_ =
      nccl::world({host.store(), host.rank(), host.size()}, *device_, {.sums = config.run.sums});
}

void RunDevice::attach(FaultInjector& faults) {
  if (faults.alters_collectives()) {
    faulty_ = std::make_unique<Communicator>(with_faults(unchecked().implementation(), faults));
  }
  // On all ranks, as it is collective, whichever of them have faults.
  if (checked_) {
    checked_ = std::make_unique<Communicator>(checked_backend(unchecked(), host_name()));
  }
  faults_.emplace(world(), faults, Listening::Turn::first);
}

}  // namespace zero
