// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#include "collectives/nccl/gpu.h"

#include <cuda_runtime_api.h>

#include <charconv>

#include "base/error.h"
#include "device/cuda/check.h"
#include "device/cuda/stream.h"

namespace zero::nccl {
namespace {

constexpr std::string_view kPrefix = "cuda:";

// 16 bytes in the format of nvidia-smi.
std::string text_of(const cudaUUID_t& uuid) {
  std::string text = "GPU-";
  for (std::size_t i = 0; i < sizeof uuid.bytes; ++i) {
    if (i == 4 || i == 6 || i == 8 || i == 10) text += '-';
    text += fmt::format("{:02x}", static_cast<unsigned char>(uuid.bytes[i]));
  }
  return text;
}

}  // namespace

Gpu use_gpu_of(const Device& device) {
  const std::string_view name = device.name();
  int index = -1;
  if (name.starts_with(kPrefix)) {
    std::from_chars(name.data() + kPrefix.size(), name.data() + name.size(), index);
  }
  ZERO_CHECK(index >= 0, "NCCL moves values of GPUs, and the device is \"{}\"; open a CUDA device",
             name);
  cuda::check(cudaSetDevice(index), "choosing the GPU for NCCL");
  cudaDeviceProp properties{};
  cuda::check(cudaGetDeviceProperties(&properties, index), "asking which GPU it is");
  return {properties.name, text_of(properties.uuid)};
}

cudaStream_t native(Stream& stream) { return cuda::native(stream); }

}  // namespace zero::nccl
