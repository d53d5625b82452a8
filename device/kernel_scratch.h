// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>

#include "device/device.h"

namespace zero {

/// Memory that a GPU's kernels take when its device is opened; so does a planning device that
/// stands for a GPU.
struct KernelScratch {
  /// Elements of fp32 that pass through one piece: 4 MiB.
  static constexpr std::int64_t kPieceElements = std::int64_t{1} << 20;

  /// The sum of the norm of one stream's reductions (ExactSum::kLimbs of i64), and the host's copy
  /// of it.
  struct Norm {
    Buffer limbs;
    Buffer copy;
  };

  explicit KernelScratch(Device& device);

  std::array<Norm, 2> norms;     ///< of the compute and of the communication stream
  std::array<Buffer, 2> pieces;  ///< host memory, through which generated values pass: fp32
};

}  // namespace zero
