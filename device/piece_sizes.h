// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string_view>

#include "device/device.h"

namespace zero {

/// The pieces that long work is cut into on a device: large enough to keep it busy, small beside
/// its memory. Ranks compare them: what is summed over pieces of rows may depend on their length.
struct PieceSizes {
  std::int64_t logit_rows = 512;                        ///< rows of logits that exist at a time
  std::int64_t received_bytes = std::int64_t{8} << 20;  ///< of one reduce-scatter's receive slices

  /// Of "cuda:0", and of a planning device that stands for one, the sizes for a GPU.
  static PieceSizes of(const Device& device) {
    if (device.name().find("cuda") == std::string_view::npos) return {};
    return {.logit_rows = 4096, .received_bytes = std::int64_t{64} << 20};
  }
};

}  // namespace zero
