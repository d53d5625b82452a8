// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "bench/limits.h"
#include "bench/report.h"

namespace zero::bench {

/// Conversions and tree reductions with `threads` threads, against the memory's best rate.
void measure_kernels(int threads, const MemoryRates& memory, Report& report);

/// One fused update of each optimizer with `threads` threads, against the memory's best rate.
void measure_optimizers(int threads, const MemoryRates& memory, Report& report);

}  // namespace zero::bench
