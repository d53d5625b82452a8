// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include "optim/update.h"

namespace zero::cpu {

// Updates elements [begin, end) of memory whose moments have a small format, in one pass over
// memory; `memory` has no moments. 8-bit moments: `begin` is a block's, and so is `end` unless it
// is the end of the update.

void update_small_adamw(const AdamConstants& constants, const UpdateMemory& memory,
                        const SmallMoments& moments, std::int64_t begin, std::int64_t end);
void update_small_adam(const AdamConstants& constants, const UpdateMemory& memory,
                       const SmallMoments& moments, std::int64_t begin, std::int64_t end);
/// With momentum.
void update_small_sgd(const SgdConstants& constants, const UpdateMemory& memory,
                      const SmallMoments& moments, std::int64_t begin, std::int64_t end);

}  // namespace zero::cpu
