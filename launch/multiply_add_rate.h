// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "base/dtype.h"

namespace zero {

/// FLOP/s of a few milliseconds of the instructions that make products of `dtype` here, on
/// `threads` threads at once, whose operands stay in registers: what no such product exceeds. Of
/// bf16 tiles or pairs if products use them (cpu::name_of_kernels), otherwise fused multiply-adds
/// of fp32 by the vector instructions that kernels use (cpu::simd_target).
double multiply_add_rate(DType dtype, int threads);

}  // namespace zero
