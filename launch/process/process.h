// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <string_view>

#include "launch/process/device_choice.h"
#include "launch/process/environment.h"

namespace zero {

/// Reports an error that perhaps only this rank knows of, as `program`, and ends all ranks. A rank
/// first waits for the ranks below it: if several fail alike, only the lowest reports the error
/// before the job ends.
[[noreturn]] void end_job(std::string_view program, const std::string& message, int rank,
                          int world);

/// The version of the library.
std::string version();
/// What computes on devices of this kind, down to what may round otherwise: the vector
/// instructions, or the versions of a GPU's libraries.
std::string kernels_text(DeviceKind device);
/// A Highway target as people call the instructions: "AVX2", "AVX-512 (Highway's target AVX3_DL)".
std::string instructions_text(std::string_view target);

/// Versions of the program, of MPI and, for a run on GPUs, of the libraries that compute there (or
/// the reason why this build has none), the vector instructions in use on this machine, and their
/// limit. Must be equal on all ranks of a job.
std::string libraries_text(DeviceKind device);
/// libraries_text() of a run on GPUs and the driver's version, which may differ between ranks.
std::string version_text();

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

/// A standard stream that was closed (>&-) gives errors, in place of the content of the next file
/// that is opened. For a program's first lines.
void keep_streams_closed();

/// A write beyond the limit of file sizes (ulimit -f) fails with an error that names the file, in
/// place of ending the process by SIGXFSZ. For a program's first lines.
void report_large_files();

}  // namespace zero
