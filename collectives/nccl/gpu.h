// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <driver_types.h>

#include <string>

#include "device/device.h"

namespace zero::nccl {

/// The GPU behind a device, as its driver names it.
struct Gpu {
  std::string name;  ///< "NVIDIA H200"
  std::string id;    ///< "GPU-8f5d...": unique in the world
};

/// Makes the GPU of `device` current on the calling thread, as NCCL expects. Throws zero::Error if
/// the device is no GPU.
Gpu use_gpu_of(const Device& device);

/// The CUDA stream behind a stream of a CUDA device.
cudaStream_t native(Stream& stream);

}  // namespace zero::nccl
