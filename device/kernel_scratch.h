// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>

#include "device/device.h"
#include "device/exact_sum.h"

namespace zero {

/// The scratch memory of a GPU's kernels, allocated when the device is opened; also by a planning
/// device that stands for a GPU.
struct KernelScratch {
  /// fp32 elements of one piece: 4 MiB.
  static constexpr std::int64_t kPieceElements = std::int64_t{1} << 20;

  /// The norm's sum of one stream's reductions (ExactSum::kLimbs of i64), and its host copy.
  struct Norm {
    Buffer limbs;
    Buffer copy;
  };

  explicit KernelScratch(Device& device) {
    for (Norm& norm : norms) {
      norm.limbs =
          device.allocate(ExactSum::kLimbs, DType::i64, MemoryClass::communication, "norm");
      norm.copy =
          device.allocate_host(ExactSum::kLimbs, DType::i64, MemoryClass::communication, "norm");
    }
    for (Buffer& piece : pieces) {
      piece = device.allocate_host(kPieceElements, DType::fp32, MemoryClass::staging,
                                   "pieces of generated values");
    }
  }

  std::array<Norm, 2> norms;     ///< of the compute and the communication stream
  std::array<Buffer, 2> pieces;  ///< host memory, fp32: upload buffers of generated values
};

}  // namespace zero
