// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <span>

#include "inference/inference_model.h"

namespace zero::bench {

/// Weights of about the size that training leaves, without a file.
inline void fill_with_random_weights(InferenceModel& model) {
  model.load([](std::size_t tensor, std::int64_t begin, std::span<float> values) {
    auto random = static_cast<std::uint32_t>(begin + 77 * static_cast<std::int64_t>(tensor));
    for (float& value : values) {
      random = random * 1664525 + 1013904223;
      value = (static_cast<float>(random >> 8) * 0x1p-23F - 1) * 0.05F;
    }
  });
}

}  // namespace zero::bench
