// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#include "device/kernel_scratch.h"

#include "device/exact_sum.h"

namespace zero {

KernelScratch::KernelScratch(Device& device) {
  for (Norm& norm : norms) {
    norm.limbs = device.allocate(ExactSum::kLimbs, DType::i64, MemoryClass::communication, "norm");
    norm.copy =
        device.allocate_host(ExactSum::kLimbs, DType::i64, MemoryClass::communication, "norm");
  }
  for (Buffer& piece : pieces) {
    piece = device.allocate_host(kPieceElements, DType::fp32, MemoryClass::staging,
                                 "pieces of generated values");
  }
}

}  // namespace zero
