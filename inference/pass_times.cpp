// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#include "inference/pass_times.h"

namespace zero {

void PassTimes::add(std::int64_t rows, double computing, double seconds) {
  const auto count = static_cast<double>(rows);
  ++passes_;
  rows_ += count;
  computing_ += computing;
  seconds_ += seconds;
  squares_ += count * count;
  products_ += count * computing;
}

std::optional<double> PassTimes::rows_for(double computing) const {
  if (computing_ <= 0) return std::nullopt;
  const double spread = mean(squares_) - rows() * rows();
  const double together = mean(products_) - rows() * this->computing();
  // A spread below rounding is none.
  constexpr double kLeast = 1e-9;
  if (spread > kLeast * mean(squares_) && together > 0) {
    const double row = together / spread;
    return rows() + (computing - this->computing()) / row;
  }
  return rows() * computing / this->computing();
}

}  // namespace zero
