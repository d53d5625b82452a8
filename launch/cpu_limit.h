// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

#include "launch/rendezvous/start.h"

namespace zero {

/// Makes this process compute as if its processor had no instructions beyond ZERO_MAX_CPU_ISA:
/// AVX2, AVX512, AVX512_BF16 or AMX. Holds for all kernels, oneDNN's too, and only lowers. To be
/// called before any kernel runs; without the variable nothing happens. Throws zero::Error for
/// other values, and where oneDNN is limited by a variable of its own.
void limit_cpu(const Environment& environment);

/// For --help.
inline constexpr const char* kCpuLimitHelp =
    "ZERO_MAX_CPU_ISA in the environment, one of AVX2, AVX512, AVX512_BF16, AMX: compute as if the "
    "processor had no instructions beyond it.";
/// For a line of --version: " (ZERO_MAX_CPU_ISA=AVX2)", empty without the variable.
std::string cpu_limit_text(const Environment& environment);

}  // namespace zero
