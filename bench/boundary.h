// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "bench/limits.h"
#include "bench/report.h"

namespace zero::bench {

/// The boundary of an optimizer step of GPT-2 124M as the engine does it, world 1, with `threads`
/// threads: the norm of the gradients, Engine::step once they are reduced, both; and the fused
/// kernel alone over as many elements, in turn with them. The limit is the memory: the best of
/// `memory` and the kernel alone.
void measure_boundary(int threads, const MemoryRates& memory, Report& report);

}  // namespace zero::bench
