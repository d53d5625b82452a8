// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <sys/wait.h>

#include <cstdlib>
#include <sstream>
#include <string>
#include <vector>

#include "tests/launch/tiny_run.h"

/// The program as users start it: one rank, and jobs under mpirun.
namespace zero::testing {

inline const std::string kTrain = ZERO_TRAIN;
inline const std::string kJob =
    std::string(ZERO_MPIEXEC) + " --allow-run-as-root --oversubscribe --bind-to none ";

/// What a program left behind.
struct Outcome {
  int status = -1;
  std::string out;
  std::string errors;

  /// The lines in which zero_train itself says what is wrong.
  std::vector<std::string> complaints() const {
    std::vector<std::string> lines;
    std::istringstream text(errors + "\n" + out);
    for (std::string line; std::getline(text, line);) {
      if (line.starts_with("zero_train: ")) lines.push_back(line);
    }
    return lines;
  }
};

inline Outcome shell(const TinyRun& run, const std::string& command) {
  const std::string out = run.folder().file("stdout.txt");
  const std::string errors = run.folder().file("stderr.txt");
  const int status = std::system(
      ("timeout -k 5 100 " + command + " >" + out + " 2>" + errors + " </dev/null").c_str());
  return {WIFEXITED(status) ? WEXITSTATUS(status) : 128, run.folder().read("stdout.txt"),
          run.folder().read("stderr.txt")};
}

inline Outcome alone(const TinyRun& run, const std::string& arguments) {
  return shell(run, kTrain + " --config " + run.config() + " " + arguments);
}

inline Outcome job(const TinyRun& run, int ranks, const std::string& arguments) {
  return shell(run, kJob + "-np " + std::to_string(ranks) + " " + kTrain + " --config " +
                        run.config() + " " + arguments);
}

}  // namespace zero::testing
