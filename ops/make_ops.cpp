// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#include "ops/cuda/make_ops.h"

#include "base/error.h"
#include "ops/cpu/cpu_inference_ops.h"
#include "ops/cpu/cpu_ops.h"

namespace zero {

std::unique_ptr<Ops> make_ops(Device& device) {
  if (device.kind() == DeviceKind::cuda) return cuda::make_ops(device);
  return std::make_unique<cpu::CpuOps>(device);
}

std::unique_ptr<InferenceOps> make_inference_ops(Device& device) {
  if (device.kind() == DeviceKind::cuda) return cuda::make_inference_ops(device);
  ZERO_CHECK(device.memory() == MemorySpace::host,
             "device {}: a model answers on a CPU or a GPU; expected one of them", device.name());
  return std::make_unique<cpu::CpuInferenceOps>(device);
}

}  // namespace zero
