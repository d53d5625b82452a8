// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstdint>
#include <numeric>

#include "collectives/operation.h"

namespace zero {

/// Bytes one rank has sent, per kind of traffic.
class TrafficCounter {
 public:
  void add(Operation counted_as, std::int64_t bytes) {
    bytes_[static_cast<std::size_t>(counted_as)] += bytes;
  }
  void add(const TrafficCounter& other) {
    for (std::size_t i = 0; i < kOperations; ++i) bytes_[i] += other.bytes_[i];
  }
  std::int64_t of(Operation operation) const { return bytes_[static_cast<std::size_t>(operation)]; }
  std::int64_t total() const {
    return std::accumulate(bytes_.begin(), bytes_.end(), std::int64_t{0});
  }
  TrafficCounter since(const TrafficCounter& earlier) const {
    TrafficCounter difference = *this;
    for (std::size_t i = 0; i < kOperations; ++i) difference.bytes_[i] -= earlier.bytes_[i];
    return difference;
  }

 private:
  std::array<std::int64_t, kOperations> bytes_{};
};

}  // namespace zero
