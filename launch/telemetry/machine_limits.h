// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "base/dtype.h"
#include "device/device.h"

namespace zero {

/// Upper limits of a rank's machine.
struct MachineLimits {
  double products = 0;  ///< FLOP/s of the best product in the dtype that computes
  double memory = 0;    ///< bytes/s
};
/// FLOP/s of a few milliseconds of the instructions that make products of `dtype` here, on
/// `threads` threads at once, whose operands stay in registers: no such product is faster. Of bf16
/// tiles or pairs if products use them (cpu::name_of_kernels), otherwise fused multiply-adds of
/// fp32 by the vector instructions that kernels use (cpu::simd_target).
double multiply_add_rate(DType dtype, int threads);
/// Of this machine's cores: products in registers (multiply_add_rate) and the best of several
/// passes over memory, with `threads` threads, in a few seconds and up to an eighth of the memory.
MachineLimits measure_limits(DType dtype, int threads);
/// Of a device, by its own products and copies on its compute stream, in a moment: larger ones
/// until they last, or its memory ends. 0 if there is no room for any.
MachineLimits measure_limits(DType dtype, Device& device);

}  // namespace zero
