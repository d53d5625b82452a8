// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

#include "launch/process/environment.h"

namespace zero {

/// Makes all kernels of this process compute as if the processor had no instructions beyond
/// ZERO_MAX_CPU_ISA: AVX2, AVX512, AVX512_BF16 or AMX. Can only lower the instruction set. Call
/// before any kernel runs. Does nothing if the variable is not set. Throws zero::Error on other
/// values.
void limit_cpu(const Environment& environment);

/// For --help.
inline constexpr const char* kCpuLimitHelp =
    "ZERO_MAX_CPU_ISA in the environment, one of AVX2, AVX512, AVX512_BF16, AMX: compute as if the "
    "processor had no instructions beyond it.";
/// Suffix for a line of --version: " (ZERO_MAX_CPU_ISA=AVX2)"; empty if the variable is not set.
std::string cpu_limit_text(const Environment& environment);

}  // namespace zero
