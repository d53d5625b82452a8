// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "optim/optimizer.h"

namespace zero {

/// The memory of one update: as UpdateArguments, bare. Moments that the rule does not have, and
/// `compute` if no copy is wanted, are null.
struct UpdateMemory {
  float* master = nullptr;
  float* moment0 = nullptr;
  float* moment1 = nullptr;
  const void* gradient = nullptr;
  DType gradient_dtype = DType::fp32;
  void* compute = nullptr;
  DType compute_dtype = DType::bf16;
};

/// The memory of an update with `moments` moments.
inline UpdateMemory memory_of(const UpdateArguments& arguments, int moments) {
  const auto moment = [&](int index) {
    return index < moments
               ? static_cast<float*>(arguments.moments[static_cast<std::size_t>(index)].data())
               : nullptr;
  };
  return {.master = static_cast<float*>(arguments.master.data()),
          .moment0 = moment(0),
          .moment1 = moment(1),
          .gradient = arguments.gradient.data(),
          .gradient_dtype = arguments.gradient.dtype(),
          .compute = arguments.compute.empty() ? nullptr : arguments.compute.data(),
          .compute_dtype = arguments.compute.dtype()};
}

}  // namespace zero
