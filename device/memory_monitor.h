// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "device/device.h"
#include "device/memory_ledger.h"

namespace zero {

/// The memory of a device at one time.
struct MemoryMoment {
  std::string label;          ///< the caller's: "step 3, backward"
  double seconds = 0;         ///< since the monitor's construction
  MemorySnapshot memory{};    ///< `recent_peak`: since the moment before
  std::int64_t reserved = 0;  ///< Device::reserved_bytes(): at least `memory.total`
  MemoryCapacity device{};
};

/// How the buffers of one label changed between two moments.
struct MemoryGrowth {
  MemoryClass memory_class = MemoryClass::other;
  std::string label;
  std::int64_t bytes = 0;       ///< negative: shrank
  double bytes_per_moment = 0;  ///< of compare(): `bytes`
};

/// Labels whose bytes differ between `a` and `b`: largest growth first, shrinking ones last.
std::vector<MemoryGrowth> growth_between(const BytesByLabel& a, BytesByLabel b);

/// A series of moments of a device's memory, and what grew in it. Used by the device's thread.
/// Holds every moment, with all labels in use: some 10 KiB for a large model.
class MemoryMonitor {
 public:
  static constexpr std::size_t kLeastMoments = 16;

  /// `device` must outlive the monitor. Begins a recent peak.
  explicit MemoryMonitor(Device& device);

  /// Adds a moment and begins a new recent peak. The reference is valid until the next snapshot.
  const MemoryMoment& snapshot(std::string_view label);
  const std::vector<MemoryMoment>& moments() const { return moments_; }

  /// growth_between() the labels of two moments.
  static std::vector<MemoryGrowth> compare(const MemoryMoment& a, const MemoryMoment& b) {
    return growth_between(a.memory.labels, b.memory.labels);
  }
  /// Labels that keep growing, by at least `threshold` bytes, fastest first: the least bytes of
  /// each part of the series exceed those of the part before, so neither growth at the start
  /// (warm-up) nor a rise and fall (a sawtooth) counts. Looks at all moments and at the last 1/2,
  /// 1/4, ... of them, where growth that started late must exceed all before it. Needs
  /// kLeastMoments, taken at the same place of a loop; fewer give nothing.
  std::vector<MemoryGrowth> leaks(std::int64_t threshold) const;
  /// leaks() of moments held elsewhere: those of a log.
  static std::vector<MemoryGrowth> leaks_of(const std::vector<MemoryMoment>& moments,
                                            std::int64_t threshold);

 private:
  Device& device_;
  std::chrono::steady_clock::time_point begin_;
  std::vector<MemoryMoment> moments_;
};

}  // namespace zero
