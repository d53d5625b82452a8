// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <sys/wait.h>

#include <cstdlib>
#include <sstream>
#include <string>
#include <vector>

#include "tests/scratch.h"

namespace zero::testing {

/// What a program left behind.
struct Outcome {
  int status = -1;
  std::string out;
  std::string errors;

  /// The lines in which `program` itself says what is wrong.
  std::vector<std::string> complaints(const std::string& program = "zero_train") const {
    std::vector<std::string> lines;
    std::istringstream text(errors + "\n" + out);
    for (std::string line; std::getline(text, line);) {
      if (line.starts_with(program + ": ")) lines.push_back(line);
    }
    return lines;
  }
};

/// Runs a command of sh, at most 500 seconds, with files of `folder` for its output.
inline Outcome shell(const Scratch& folder, const std::string& command,
                     const std::string& input = "/dev/null") {
  const int status = std::system(("timeout -k 5 500 " + command + " >" + folder.path("stdout.txt") +
                                  " 2>" + folder.path("stderr.txt") + " <" + input)
                                     .c_str());
  return {WIFEXITED(status) ? WEXITSTATUS(status) : 128, folder.read("stdout.txt"),
          folder.read("stderr.txt")};
}

}  // namespace zero::testing
