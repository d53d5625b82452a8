// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#include "inference/inference_ops.h"

#include "base/error.h"
#include "inference/cpu/cpu_inference_ops.h"

namespace zero {

WeightFormat weight_format_from_name(std::string_view name) {
  if (name == "dtype") return WeightFormat::plain;
  if (name == "int8") return WeightFormat::int8;
  if (name == "nf4") return WeightFormat::nf4;
  ZERO_CHECK(name == "q4", "weights are \"{}\"; expected dtype, int8, nf4 or q4", name);
  return WeightFormat::q4;
}

CacheFormat cache_format_from_name(std::string_view name) {
  if (name == "dtype") return CacheFormat::plain;
  ZERO_CHECK(name == "int8", "the cache is \"{}\"; expected dtype or int8", name);
  return CacheFormat::int8;
}

std::unique_ptr<InferenceOps> make_inference_ops(Device& device) {
  ZERO_CHECK(device.memory() == Memory::of_host,
             "device {}: a model answers on the CPU; expected a device of memory that the host can "
             "access",
             device.name());
  return std::make_unique<cpu::CpuInferenceOps>(device);
}

}  // namespace zero
