// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <vector>

#include "base/dtype.h"
#include "device/device.h"

namespace zero {

/// Measures memory bandwidth, in turn with other work: a rate is comparable only beside another of
/// the same minute.
class MemoryProbe {
 public:
  explicit MemoryProbe(int threads);

  /// Copies, adds and reads arrays beyond the caches, once each. The first pass warms up.
  void pass();
  /// Bytes of one array: well beyond the last-level cache, within an eighth of the memory for all.
  static std::int64_t array_bytes();
  /// Seconds of the passes so far but the first: copying (moves two arrays), a = b + s * c (three),
  /// reading (one).
  struct Seconds {
    std::vector<double> copy, triad, read;
  };
  const Seconds& seconds() const { return seconds_; }
  /// Bytes per second, read and written by the program (not counting lines that caches fetch before
  /// a write): the best of the three, each the median of its passes; 0 before the second pass.
  double rate() const;

 private:
  /// Calls body(begin, count) for parts of the arrays on all threads; its seconds.
  template <typename Body>
  double over(const Body& body) const;

  int threads_;
  std::unique_ptr<Device> device_;
  Buffer a_, b_, c_;
  std::atomic<std::uint64_t> sink_ = 0;  // keeps the reads alive
  bool warm_ = false;
  Seconds seconds_;
};

/// Upper limits of a rank's machine.
struct MachineLimits {
  double products = 0;  ///< FLOP/s of the best product in the dtype that computes
  double memory = 0;    ///< bytes/s
};
/// FLOP/s of a few milliseconds of the instructions that make products of `dtype` here, on
/// `threads` threads at once, whose operands stay in registers: no such product is faster. Of bf16
/// tiles or pairs if products use them (cpu::name_of_kernels), otherwise fused multiply-adds of
/// fp32 by the vector instructions that kernels use (cpu::simd_target).
double multiply_add_rate(DType dtype, int threads);
/// Of this machine's cores: products in registers (multiply_add_rate) and the best of several
/// passes over memory, with `threads` threads, in a few seconds and up to an eighth of the memory.
MachineLimits measure_limits(DType dtype, int threads);
/// Of a device, by its own products and copies on its compute stream, in a moment: larger ones
/// until they last, or its memory ends. 0 if there is no room for any.
MachineLimits measure_limits(DType dtype, Device& device);

}  // namespace zero
