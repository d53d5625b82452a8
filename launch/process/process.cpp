// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#include "launch/process/process.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <csignal>
#include <thread>

#include "collectives/backends.h"
#include "launch/telemetry/output.h"

namespace zero {

void end_job(std::string_view program, const std::string& message, int rank, int world,
             int status) {
  std::this_thread::sleep_for(std::chrono::milliseconds(200 * std::min(rank, 8)));
  const std::string who =
      world == 1 || message.starts_with("[rank ") ? "" : fmt::format("[rank {}] ", rank);
  print_to_stderr(fmt::format("{}: {}{}\n", program, who, message));
  mpi::abort(status);
}

void keep_streams_closed() {
  for (const int stream : {STDIN_FILENO, STDOUT_FILENO, STDERR_FILENO}) {
    if (::fcntl(stream, F_GETFD) >= 0) continue;
    // The lowest that is free; the wrong way to be of use.
    static_cast<void>(::open("/dev/null", stream == STDIN_FILENO ? O_WRONLY : O_RDONLY));
  }
}

void report_large_files() { ::signal(SIGXFSZ, SIG_IGN); }

}  // namespace zero
