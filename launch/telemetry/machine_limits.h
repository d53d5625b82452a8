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
/// Of this machine's cores: oneDNN's products and the best of several passes over memory, with
/// `threads` threads, in a few seconds and up to an eighth of the memory.
MachineLimits measure_limits(DType dtype, int threads);
/// Of a device, by its own products and copies on its compute stream, in a moment: larger ones
/// until they last, or its memory ends. 0 if there is no room for any.
MachineLimits measure_limits(DType dtype, Device& device);

}  // namespace zero
