// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>

#include "bench/report.h"

namespace zero::bench {

/// Memory bandwidth of this machine: median GB/s of bytes that the program reads and writes (not
/// counting lines that caches fetch before a write).
struct MemoryRates {
  double copy = 0;   ///< memcpy: one read, one write
  double triad = 0;  ///< a = b + s * c: two reads, one write
  double read = 0;

  /// The limit for a kernel that mixes reads and writes.
  double best() const { return std::max({copy, triad, read}); }
};

/// Measures the memory with `threads` threads on arrays beyond the caches; adds its rows.
MemoryRates measure_memory(int threads, Report& report);

/// Measures oneDNN's matrix products in bf16 and fp32 at GPT-2's shapes with `threads` threads,
/// with operands in oneDNN's preferred layout (packed) and in plain row-major. The limit is the
/// best of them and of multiply-adds in registers. Adds its rows.
void measure_products(int threads, Report& report);

}  // namespace zero::bench
