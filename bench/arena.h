// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "bench/report.h"
#include "device/device.h"

namespace zero::bench {

struct MemoryRates;

/// Memory shared by the cases of one section, so that each can move far more than the caches hold.
/// All zero before and after every case.
class Arena {
 public:
  explicit Arena(Device& device);
  /// Elements of a case that touches `bytes` bytes per element, once each.
  static std::int64_t count_for(std::int64_t bytes);
  /// The next case starts at the arena's beginning.
  void restart() { used_ = 0; }
  View take(std::int64_t count, DType dtype);

 private:
  Buffer buffer_;
  std::int64_t used_ = 0;
};

/// A kernel bound by memory bandwidth: row.bytes is the least that one call of `body` must move.
struct RateCase {
  Row row;
  std::function<void()> body;
};

/// Times the cases in turn, sets each rate and its limit (memory.best()) and adds the rows.
void measure_rates(std::vector<RateCase> cases, const MemoryRates& memory, Report& report);

}  // namespace zero::bench
