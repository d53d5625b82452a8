// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "base/dtype.h"
#include "device/device.h"

namespace zero {

/// Measures memory bandwidth in turn with other work: only rates taken in the same minute are
/// comparable.
class MemoryProbe {
 public:
  explicit MemoryProbe(int threads);

  /// Copies, adds and reads arrays beyond the caches, once each. The first pass warms up.
  void pass();
  /// Bytes of one array: far beyond the last-level cache, with all arrays within 1/8 of the memory.
  static std::int64_t array_bytes();
  /// Seconds of the passes so far except the first: copy (moves two arrays), a = b + s * c (three),
  /// read (one).
  struct Seconds {
    std::vector<double> copy, triad, read;
  };
  const Seconds& seconds() const { return seconds_; }
  /// Bytes per second that the program reads and writes (not counting lines that caches fetch
  /// before a write): the best of the three, each at the median of its passes; 0 before the second
  /// pass.
  double rate() const;

 private:
  /// Calls body(begin, count) for parts of the arrays on all threads; returns the seconds.
  template <typename Body>
  double over(const Body& body) const;

  int threads_;
  std::unique_ptr<Device> device_;
  Buffer a_, b_, c_;
  std::atomic<std::uint64_t> sink_ = 0;  // prevents removal of the reads
  bool warm_ = false;
  Seconds seconds_;
};

/// Upper limits of a rank's machine.
struct MachineLimits {
  double products = 0;  ///< FLOP/s of the best product in the compute dtype
  double memory = 0;    ///< bytes/s
};
/// Peak FLOP/s, over a few milliseconds on `threads` threads, of the instructions that products of
/// `dtype` use here, with operands that stay in registers: no such product is faster. For bf16,
/// tiles or pairs if products use them (cpu::kernels_of); otherwise fused multiply-adds in
/// fp32 with the vector instructions of the kernels (cpu::simd_target).
double multiply_add_rate(DType dtype, int threads);
/// Limits of this machine's cores: products in registers (multiply_add_rate) and the best of
/// several passes over memory, with `threads` threads, in a few seconds and up to 1/8 of the
/// memory.
MachineLimits measure_limits(DType dtype, int threads);
/// Limits of a device, from products and copies on its compute stream: sizes grow until one takes
/// long enough to measure or memory runs out. 0 if the device has room for none.
MachineLimits measure_limits(DType dtype, Device& device);

/// Random values of [-1, 1) for an array's part from `begin` on (Kernels::generate()): zeros would
/// draw less power than real data and allow higher clock rates.
void random_floats(std::int64_t begin, std::span<float> out);

}  // namespace zero
