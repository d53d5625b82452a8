// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "bench/limits.h"
#include "bench/report.h"

namespace zero::bench {

/// Measures the boundary of an optimizer step of GPT-2 124M in the engine, world 1, with `threads`
/// threads: the norm of the gradients, Engine::step on reduced gradients, and both together; in
/// turn with them, the fused kernel alone over as many elements. The limit is memory bandwidth: the
/// best of `memory` and the kernel alone.
void measure_boundary(int threads, const MemoryRates& memory, Report& report);

}  // namespace zero::bench
