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
  std::string id;    ///< "GPU-8f5d...": of this one in the world
};

/// Makes the GPU of `device` the calling thread's, which NCCL takes it from. Throws zero::Error
/// where the device is no GPU.
Gpu use_gpu_of(const Device& device);

/// CUDA's own stream behind a stream of a CUDA device.
cudaStream_t native(Stream& stream);

}  // namespace zero::nccl
