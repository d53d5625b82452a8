// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <string_view>

#include "launch/process/exit_status.h"

namespace zero {

/// Reports an error that perhaps only this rank knows of, as `program`, and ends all ranks with
/// `status`. A rank first waits for the ranks below it: if several fail alike, only the lowest
/// reports the error before the job ends.
[[noreturn]] void end_job(std::string_view program, const std::string& message, int rank, int world,
                          int status = exit_status::kFault);

/// A standard stream that was closed (>&-) gives errors, in place of the content of the next file
/// that is opened. For a program's first lines.
void keep_streams_closed();

/// A write beyond the limit of file sizes (ulimit -f) fails with an error that names the file, in
/// place of ending the process by SIGXFSZ. For a program's first lines.
void report_large_files();

}  // namespace zero
