// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include "optim/update_constants.h"

namespace zero::cpu {

/// The memory of one update: as UpdateArguments, bare. `begin` and `end` of the functions below are
/// elements of it. `compute` is null where no copy is wanted.
struct UpdateMemory {
  float* master = nullptr;
  float* moment0 = nullptr;
  float* moment1 = nullptr;
  const void* gradient = nullptr;
  DType gradient_dtype = DType::fp32;
  void* compute = nullptr;
  DType compute_dtype = DType::bf16;
};

void update_adamw(const AdamConstants& constants, const UpdateMemory& memory, std::int64_t begin,
                  std::int64_t end);
void update_adam(const AdamConstants& constants, const UpdateMemory& memory, std::int64_t begin,
                 std::int64_t end);
/// Uses moment0 unless it is null.
void update_sgd(const SgdConstants& constants, const UpdateMemory& memory, std::int64_t begin,
                std::int64_t end);

}  // namespace zero::cpu
