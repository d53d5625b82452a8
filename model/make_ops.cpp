// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#include "model/cuda/make_ops.h"

#include "model/cpu/cpu_ops.h"
#include "model/ops.h"

namespace zero {

std::unique_ptr<Ops> make_ops(Device& device) {
  // "cuda:0", and a planning device that stands for one.
  if (device.name().find("cuda") != std::string_view::npos) return cuda::make_ops(device);
  return std::make_unique<cpu::CpuOps>(device);
}

}  // namespace zero
