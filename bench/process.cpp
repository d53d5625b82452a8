// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#include "bench/process.h"

#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <sstream>
#include <string_view>

#include "base/error.h"

namespace zero::bench {
namespace {

/// A file without a name that a program writes to.
class Capture {
 public:
  Capture() {
    ZERO_CHECK(file_ != nullptr, "cannot make a temporary file: {}", std::strerror(errno));
  }
  Capture(const Capture&) = delete;
  Capture& operator=(const Capture&) = delete;
  ~Capture() { std::fclose(file_); }

  int file() const { return ::fileno(file_); }
  std::string text() const {
    std::string all;
    std::array<char, 4096> part{};
    ::lseek(file(), 0, SEEK_SET);
    for (ssize_t got = 0; (got = ::read(file(), part.data(), part.size())) > 0;) {
      all.append(part.data(), static_cast<std::size_t>(got));
    }
    return all;
  }

 private:
  std::FILE* file_ = std::tmpfile();
};

/// The environment without what MPI has put there for this process: a job that is started from here
/// is a job of its own.
std::vector<char*> clean_environment() {
  std::vector<char*> clean;
  for (char** entry = environ; *entry != nullptr; ++entry) {
    const std::string_view text(*entry);
    const bool of_mpi = text.starts_with("OMPI_") || text.starts_with("PMIX_") ||
                        text.starts_with("ORTE_") || text.starts_with("PRTE_");
    // Settings that users make are theirs to pass on.
    if (!of_mpi || text.starts_with("OMPI_MCA_btl") || text.starts_with("OMPI_ALLOW"))
      clean.push_back(*entry);
  }
  clean.push_back(nullptr);
  return clean;
}

}  // namespace

Finished run_program(const std::vector<std::string>& command) {
  const Capture output;
  const Capture errors;
  posix_spawn_file_actions_t actions;
  ::posix_spawn_file_actions_init(&actions);
  ::posix_spawn_file_actions_addopen(&actions, 0, "/dev/null", 0, 0);
  ::posix_spawn_file_actions_adddup2(&actions, output.file(), 1);
  ::posix_spawn_file_actions_adddup2(&actions, errors.file(), 2);
  std::vector<std::string> copies = command;
  std::vector<char*> arguments;
  for (std::string& each : copies) arguments.push_back(each.data());
  arguments.push_back(nullptr);
  std::vector<char*> environment = clean_environment();
  pid_t child = 0;
  const int failed =
      ::posix_spawnp(&child, arguments[0], &actions, nullptr, arguments.data(), environment.data());
  ::posix_spawn_file_actions_destroy(&actions);
  ZERO_CHECK(failed == 0, "cannot start {}: {}", command[0], std::strerror(failed));
  int status = 0;
  while (::waitpid(child, &status, 0) < 0 && errno == EINTR) {
  }
  return {.status = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status),
          .output = output.text(),
          .errors = errors.text()};
}

std::string reason_in(const Finished& finished) {
  std::string reason;
  bool named = false;
  std::istringstream lines(finished.errors.empty() ? finished.output : finished.errors);
  for (std::string line; std::getline(lines, line);) {
    const bool names = line.find("Error") != std::string::npos || line.starts_with("zero_");
    if (line.find_first_not_of(" \t\r-") == std::string::npos || (named && !names)) continue;
    reason = line;
    named = named || names;
  }
  return reason;
}

}  // namespace zero::bench
