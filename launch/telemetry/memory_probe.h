// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

namespace zero {

/// Measures memory bandwidth, in turn with other work: a rate is comparable
/// only beside another of the same minute.
class MemoryProbe {
 public:
  explicit MemoryProbe(int threads);
  ~MemoryProbe();
  MemoryProbe(const MemoryProbe&) = delete;
  MemoryProbe& operator=(const MemoryProbe&) = delete;

  /// Copies, adds and reads arrays beyond the caches, once each. The first pass warms up.
  void pass();
  /// Bytes of one array: well beyond the last-level cache, within an eighth of the memory for all.
  static std::int64_t array_bytes();
  /// Seconds of the passes so far but the first: copying (moves two arrays), a = b + s * c (three),
  /// reading (one).
  struct Seconds {
    std::vector<double> copy, triad, read;
  };
  const Seconds& seconds() const;
  /// Bytes per second, read and written by the program (not counting lines that caches fetch before
  /// a write): the best of the three, each the median of its passes; 0 before the second pass.
  double rate() const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace zero
