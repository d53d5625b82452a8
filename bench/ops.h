// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "bench/limits.h"
#include "bench/report.h"

namespace zero::bench {

/// Times the device's kernels that the engine calls, conversions and tree reductions, with
/// `threads` threads, against the memory's best rate; adds rows of section "ops".
void measure_device_kernels(int threads, const MemoryRates& memory, Report& report);

}  // namespace zero::bench
