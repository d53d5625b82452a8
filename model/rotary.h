// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

namespace zero {

/// Llama 3's stretching of rotary embeddings to a longer context than was trained first: turns
/// longer than original_context / low_frequency are slowed by `factor`, those shorter than
/// original_context / high_frequency kept, between them a blend.
struct RotaryScaling {
  double factor = 8;
  double low_frequency = 1;
  double high_frequency = 4;
  std::int64_t original_context = 8192;
};

/// Rotary position embeddings (Su et al. 2021): pair i of a head of d elements turns by position *
/// theta^(-2i/d).
struct RotaryAngles {
  double theta = 10000;
  std::optional<RotaryScaling> scaling{};

  /// Throws zero::Error naming the field that is out of range.
  void validate() const;
  /// Radians per position of each pair of a head, head_width / 2 of them.
  std::vector<double> frequencies(std::int64_t head_width) const;
};

}  // namespace zero
