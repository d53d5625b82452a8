// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <vector>

namespace zero::bench {

/// What a program that was run to its end left behind.
struct Finished {
  int status = 0;        ///< as a shell gives it: 128 + the signal where one ended it
  std::string output{};  ///< standard output
  std::string errors{};
};

/// Runs `command` (a program and its arguments; no shell sees them) and waits. Throws zero::Error
/// where it cannot be started at all.
Finished run_program(const std::vector<std::string>& command);

/// Why a program failed, as it says itself: the last line of its errors that names one, else the
/// last that says anything, else the last line of its output.
std::string reason_in(const Finished& finished);

}  // namespace zero::bench
