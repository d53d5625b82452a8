// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "bench/report.h"

namespace zero::bench {

/// Measures, per stage, the host's work other than computing in a step of a small GPT-2 (12 layers
/// of width 128, 8 x 256 tokens): leases, schedule, submissions, ledger, checks, and a log line.
/// The step is timed on a device that drops all work, and reported in percent of a step on the CPU
/// with `threads` threads. The limit is the largest percentage allowed.
void measure_bookkeeping(int threads, Report& report);

}  // namespace zero::bench
