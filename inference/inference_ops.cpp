// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#include "inference/inference_ops.h"

#include "base/error.h"
#include "inference/cpu/cpu_inference_ops.h"
#include "inference/cuda/make_inference_ops.h"

namespace zero {

CacheFormat cache_format_from_name(std::string_view name) {
  if (name == "dtype") return CacheFormat::plain;
  ZERO_CHECK(name == "int8", "the cache is \"{}\"; expected dtype or int8", name);
  return CacheFormat::int8;
}

std::string_view name_of(CacheFormat format) {
  return format == CacheFormat::plain ? "dtype" : "int8";
}

std::unique_ptr<InferenceOps> make_inference_ops(Device& device) {
  // "cuda:0", and a planning device that stands for one.
  if (device.name().find("cuda") != std::string_view::npos) return cuda::make_inference_ops(device);
  ZERO_CHECK(device.memory() == Memory::of_host,
             "device {}: a model answers on a CPU or a GPU; expected one of them", device.name());
  return std::make_unique<cpu::CpuInferenceOps>(device);
}

}  // namespace zero
