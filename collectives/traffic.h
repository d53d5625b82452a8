// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstdint>

#include "collectives/operation.h"

namespace zero {

/// Bytes one rank has sent, per kind of traffic.
class TrafficCounter {
 public:
  void add(Operation counted_as, std::int64_t bytes) {
    bytes_[static_cast<std::size_t>(counted_as)] += bytes;
  }
  void add(const TrafficCounter& other);
  std::int64_t of(Operation operation) const { return bytes_[static_cast<std::size_t>(operation)]; }
  std::int64_t total() const;
  TrafficCounter since(const TrafficCounter& earlier) const;

 private:
  std::array<std::int64_t, kOperations> bytes_{};
};

}  // namespace zero
