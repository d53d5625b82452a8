// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "model/cpu/packed_kernels.h"

namespace zero::cpu::packed {

// Kernels::multiply and in_registers of pair_kernels(), for processors with AVX512_BF16.

/// Columns of squares per multiply_pairs(), at most.
inline constexpr std::int64_t kPairSquares = 4;
void multiply_pairs(const StripProduct& product);
double pairs_in_registers(std::int64_t turns);

}  // namespace zero::cpu::packed
