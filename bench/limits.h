// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>

#include "bench/report.h"

namespace zero::bench {

/// What the memory of this machine moves, in GB/s of bytes read and written by the program (not
/// counting lines that caches fetch before a write), on the median.
struct MemoryRates {
  double copy = 0;   ///< memcpy: one read, one write
  double triad = 0;  ///< a = b + s * c: two reads, one write
  double read = 0;

  /// What a kernel that mixes reads and writes is held against.
  double best() const { return std::max({copy, triad, read}); }
};

/// Measures the memory with `threads` threads on arrays beyond the caches; adds its rows.
MemoryRates measure_memory(int threads, Report& report);

/// Measures oneDNN's matrix products in bf16 and fp32 at GPT-2's shapes with `threads` threads: as
/// a library would like its operands laid out (packed) and with plain row-major operands. The limit
/// is the best of them and of multiply-adds in registers. Adds its rows.
void measure_products(int threads, Report& report);

}  // namespace zero::bench
