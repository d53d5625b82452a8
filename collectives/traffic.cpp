// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#include "collectives/traffic.h"

#include <numeric>

namespace zero {

std::int64_t TrafficCounter::total() const {
  return std::accumulate(bytes_.begin(), bytes_.end(), std::int64_t{0});
}

void TrafficCounter::add(const TrafficCounter& other) {
  for (std::size_t i = 0; i < bytes_.size(); ++i) bytes_[i] += other.bytes_[i];
}

TrafficCounter TrafficCounter::since(const TrafficCounter& earlier) const {
  TrafficCounter difference;
  for (std::size_t i = 0; i < bytes_.size(); ++i) {
    difference.bytes_[i] = bytes_[i] - earlier.bytes_[i];
  }
  return difference;
}

}  // namespace zero
