// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

namespace zero {

/// Llama 3's scaling of rotary embeddings to a context longer than the original one: wavelengths
/// above original_context / low_frequency are multiplied by `factor`, those below original_context
/// / high_frequency are unchanged, those between are blended.
struct RotaryScaling {
  double factor = 8;
  double low_frequency = 1;
  double high_frequency = 4;
  std::int64_t original_context = 8192;
};

/// Rotary position embeddings (Su et al. 2021): pair i of a head of d elements is rotated by
/// position * theta^(-2i/d) radians.
struct RotaryAngles {
  double theta = 10000;
  std::optional<RotaryScaling> scaling{};
  double linear_factor = 1;  ///< every frequency is divided by it (Chen et al. 2023)

  /// Throws zero::Error naming the field that is out of range.
  void validate() const;
  /// The radians per position of each of a head's head_width / 2 pairs.
  std::vector<double> frequencies(std::int64_t head_width) const;
};

}  // namespace zero
