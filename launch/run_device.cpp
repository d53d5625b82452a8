// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#include "launch/run_device.h"

#include <fmt/format.h>

#include <algorithm>
#include <vector>

#include "collectives/backends.h"
#include "collectives/nccl/options.h"
#include "collectives/store.h"
#include "device/cuda/gpus.h"
#include "launch/agree.h"
#include "launch/memory_report.h"
#include "launch/process.h"
#include "launch/start.h"

namespace zero {
namespace {

std::unique_ptr<Device> open_cpu(const TrainConfig& config, Instruments* instruments) {
  const cpu::Options cores{.threads = config.run.threads};
  return instruments != nullptr ? cpu::open(cores, *instruments) : cpu::open(cores);
}

/// Threads meet in their process; NCCL is for ranks that each have a GPU.
bool share_a_gpu(std::string_view host, int ranks) {
  return host == "local" && cuda::visible_devices() < ranks;
}

BytesByClass planned_arenas(const TrainConfig& config, const Communicator& host,
                            std::string_view backend) {
  return plan_memory(config, host.rank(), host.size(), backend, Memory::apart).device.arenas;
}

/// Ranks that are processes, before they take memory of their GPUs. Collective.
void require_own_gpus(Communicator& host, const std::string& mine) {
  const std::vector<std::string> gpus = exchange(host, *cpu::open(), mine, "run.device");
  for (std::size_t one = 0; one < gpus.size(); ++one) {
    const auto same =
        std::find(gpus.begin(), gpus.begin() + static_cast<std::ptrdiff_t>(one), gpus[one]);
    if (same == gpus.begin() + static_cast<std::ptrdiff_t>(one)) continue;
    throw AgreedError(fmt::format(
        "run.device is \"cuda\", and ranks {} and {} are both on {}; start no more ranks on a host "
        "than it has GPUs, let each process see another one (srun --gpus-per-task=1, "
        "CUDA_VISIBLE_DEVICES), or compute with run.device=cpu",
        same - gpus.begin(), one, gpus[one]));
  }
}

/// Whether whoever started this process gave it one GPU.
bool given_one_gpu() {
  const auto given = process_environment()("CUDA_VISIBLE_DEVICES");
  return given && given->find(',') == std::string::npos;
}

}  // namespace

DeviceChoice choose_device(int ranks) {
  const int gpus = cuda::visible_devices();
  if (gpus == 0) return {DeviceKind::cpu, "auto: no GPU that this build can use"};
  if (gpus < ranks) {
    return {DeviceKind::cpu, fmt::format("auto: {} GPU(s) for {} ranks of this host", gpus, ranks)};
  }
  return {DeviceKind::cuda, fmt::format("auto: {} GPU(s)", gpus)};
}

DeviceChoice choose_device_of_process(int ranks) {
  if (cuda::visible_devices() == 1 && ranks > 1 && given_one_gpu()) {
    return {DeviceKind::cuda, "auto: the GPU of CUDA_VISIBLE_DEVICES"};
  }
  return choose_device(ranks);
}

std::string_view backend_on(DeviceKind kind, const TrainConfig& config, std::string_view host) {
  if (kind == DeviceKind::cpu || config.world == 1 || share_a_gpu(host, config.world)) return host;
  return config.run.sums == nccl::Sums::fast ? "nccl fast" : "nccl";
}

std::unique_ptr<Device> plan_device(const TrainConfig& config, Memory memory) {
  if (config.run.device == DeviceKind::cpu) return planning::open(config.run.threads, memory);
  return planning::open(1, Memory::apart, "cuda");
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
    device_ = open_cpu(config, instruments);
    return;
  }
  const bool shared = share_a_gpu(host.backend(), host.size());
  int index = 0;
  std::string mine;
  agree(host, *cpu::open(), "run.device", [&] {
    if (!shared) index = cuda::index_of_rank(host.local_rank());
    mine = fmt::format("{} of {}", cuda::uuid_of(index), host_name());
    ZERO_CHECK(host.size() == 1 || shared || nccl::available(),
               "run.device is \"cuda\", and this build has no NCCL, through which {} GPUs talk: {}",
               host.size(), nccl::version());
  });
  if (!shared) require_own_gpus(host, mine);
  agree(host, *cpu::open(), "run.device", [&] {
    const std::string_view backend = backend_on(DeviceKind::cuda, config, host.backend());
    const cuda::Options gpu{.index = index, .reserve = planned_arenas(config, host, backend)};
    device_ = instruments != nullptr ? cuda::open(gpu, *instruments) : cuda::open(gpu);
  });
  if (host.size() == 1 || shared) return;
  gpus_ =
      nccl::world({host.store(), host.rank(), host.size()}, *device_, {.sums = config.run.sums});
}

}  // namespace zero
