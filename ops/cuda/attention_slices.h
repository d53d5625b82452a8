// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstdint>

namespace zero::cuda {

/// The largest divisor of `batch` that is at most `most`, and at least 1.
inline std::int64_t divisor_up_to(std::int64_t batch, std::int64_t most) {
  std::int64_t count = std::clamp<std::int64_t>(most, 1, batch);
  while (batch % count != 0) --count;
  return count;
}

/// A plan for some sequences of a batch at a time: make(count) of `first` sequences, or, if
/// bytes_of(plan) is more than `most`, of half as many or the next divisor of the batch below, and
/// so on. What it returns may be too large only if it is of one sequence.
template <typename Make, typename Bytes>
auto plan_that_fits(std::int64_t batch, std::int64_t first, std::int64_t most, const Make& make,
                    const Bytes& bytes_of) {
  std::int64_t count = divisor_up_to(batch, first);
  auto plan = make(count);
  while (count > 1 && bytes_of(plan) > most) {
    count = divisor_up_to(batch, count / 2);
    plan = make(count);
  }
  return plan;
}

}  // namespace zero::cuda
