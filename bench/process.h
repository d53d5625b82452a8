// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <vector>

namespace zero::bench {

/// The outcome of a program that has ended.
struct Finished {
  int status = 0;        ///< exit status as in a shell: 128 + the signal if one ended it
  std::string output{};  ///< standard output
  std::string errors{};
};

/// Runs `command` (a program and its arguments, without a shell) and waits. Throws zero::Error if
/// the program cannot be started.
Finished run_program(const std::vector<std::string>& command);

/// The program's own reason for its failure: the last line of its errors that names an error, else
/// the last line of its errors that is not empty, else the last line of its output.
std::string reason_in(const Finished& finished);

}  // namespace zero::bench
