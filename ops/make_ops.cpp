// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#include "ops/cuda/make_ops.h"

#include "ops/cpu/cpu_ops.h"
#include "ops/ops.h"

namespace zero {

std::unique_ptr<Ops> make_ops(Device& device) {
  if (device.kind() == DeviceKind::cuda) return cuda::make_ops(device);
  return std::make_unique<cpu::CpuOps>(device);
}

}  // namespace zero
