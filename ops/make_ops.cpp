// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#include "ops/cpu/make_ops.h"

#include "base/error.h"
#include "ops/cuda/make_ops.h"

namespace zero {

std::unique_ptr<Ops> make_ops(Device& device) {
  if (device.kind() == DeviceKind::cuda) return cuda::make_ops(device);
  return cpu::make_ops(device);
}

bool has_gpu_ops() {
  static const bool built_in = [] {
    try {
      cuda::make_ops(*planning::open(1, MemorySpace::device, DeviceKind::cuda));
    } catch (const Error&) {
      return false;
    }
    return true;
  }();
  return built_in;
}

std::unique_ptr<Device> plan_gpu(const planning::ClockOptions& clock) {
  if (!has_gpu_ops()) return planning::open_gpu_memory(clock);
  return planning::open(clock, 1, MemorySpace::device, DeviceKind::cuda);
}

std::unique_ptr<InferenceOps> make_inference_ops(Device& device) {
  if (device.kind() == DeviceKind::cuda) return cuda::make_inference_ops(device);
  ZERO_CHECK(device.memory() == MemorySpace::host || !device.has_memory(),
             "device {}: a model answers on a CPU or a GPU; expected one of them", device.name());
  return cpu::make_inference_ops(device);
}

}  // namespace zero
