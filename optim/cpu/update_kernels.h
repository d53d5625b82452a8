// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include "optim/update_constants.h"
#include "optim/update_memory.h"

namespace zero::cpu {

/// Elements [begin, end) of one update.
void update_adamw(const AdamConstants& constants, const UpdateMemory& memory, std::int64_t begin,
                  std::int64_t end);
void update_adam(const AdamConstants& constants, const UpdateMemory& memory, std::int64_t begin,
                 std::int64_t end);
/// Uses moment0 unless it is null.
void update_sgd(const SgdConstants& constants, const UpdateMemory& memory, std::int64_t begin,
                std::int64_t end);

}  // namespace zero::cpu
