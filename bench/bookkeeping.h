// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "bench/report.h"

namespace zero::bench {

/// What the host does besides computing in a step of a small GPT-2 (12 layers of width 128, 8 x 256
/// tokens), per stage: leases, schedule, submissions, ledger, checks, and a line of the log. It is
/// timed on a device that drops all work, and is given in percent of a step on the CPU with
/// `threads` threads. The limit is what it may be.
void measure_bookkeeping(int threads, Report& report);

}  // namespace zero::bench
