// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#include "launch/run_device.h"

#include <fmt/format.h>

#include "collectives/backends.h"
#include "collectives/nccl/options.h"
#include "launch/agree.h"
#include "launch/memory_report.h"

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

}  // namespace

DeviceChoice choose_device(int ranks) {
  const int gpus = cuda::visible_devices();
  if (gpus == 0) return {DeviceKind::cpu, "auto: no GPU that this build can use"};
  if (gpus < ranks) {
    return {DeviceKind::cpu, fmt::format("auto: {} GPU(s) for {} ranks of this host", gpus, ranks)};
  }
  return {DeviceKind::cuda, fmt::format("auto: {} GPU(s)", gpus)};
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
  agree(host, *cpu::open(), "run.device", [&] {
    const std::string_view backend = backend_on(DeviceKind::cuda, config, host.backend());
    const cuda::Options gpu{.index = shared ? 0 : host.local_rank(),
                            .reserve = planned_arenas(config, host, backend)};
    device_ = instruments != nullptr ? cuda::open(gpu, *instruments) : cuda::open(gpu);
    ZERO_CHECK(host.size() == 1 || shared || nccl::available(),
               "run.device is \"cuda\", and this build has no NCCL, through which {} GPUs talk: {}",
               host.size(), nccl::version());
  });
  if (host.size() == 1 || shared) return;
  gpus_ =
      nccl::world({host.store(), host.rank(), host.size()}, *device_, {.sums = config.run.sums});
}

}  // namespace zero
