// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#include "inference/cpu/file_rows.h"

#include <algorithm>
#include <cmath>

#include "base/error.h"
#include "inference/cpu/weight_codes.h"

namespace zero::cpu {

std::vector<float> FileRows::columns(std::int64_t column) const {
  const std::int64_t depths = depth_end() - depth_begin();
  std::vector<float> found(static_cast<std::size_t>(depths * kSquare), 0.0F);
  for (std::int64_t i = 0; i < depths; ++i) {
    for (std::int64_t j = 0; j < std::min(kSquare, column_end() - column); ++j) {
      const float value = at(depth_begin() + i, column + j);
      ZERO_CHECK(std::isfinite(value),
                 "input {} of output {} has weight {}; expected a finite number, which codes take",
                 depth_begin() + i, column + j, value);
      found[static_cast<std::size_t>(i * kSquare + j)] = value;
    }
  }
  return found;
}

}  // namespace zero::cpu
