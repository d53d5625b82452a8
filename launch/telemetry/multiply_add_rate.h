// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

namespace zero {

/// FLOP/s of a few milliseconds of fused multiply-adds of fp32 on `threads` threads at once, whose
/// operands stay in registers: what no fp32 product exceeds. By the vector instructions that
/// kernels use here (cpu::simd_target).
double multiply_add_rate(int threads);

}  // namespace zero
