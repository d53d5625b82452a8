// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#include "launch/train/process_state.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <cstdio>
#include <cstring>
#include <string_view>

#include "launch/process/exit_status.h"

namespace zero {

void ProcessFaults::join(RunFaults& faults) {
  const std::scoped_lock lock(mutex_);
  all_.push_back(&faults);
}

void ProcessFaults::leave(const RunFaults& faults) {
  const std::scoped_lock lock(mutex_);
  std::erase(all_, &faults);
}

bool ProcessFaults::takes_over() const {
  const std::scoped_lock lock(mutex_);
  return std::ranges::any_of(all_, [](const RunFaults* each) { return each->takes_over(); });
}

void ProcessFaults::ended_by(int signal, RunFaults::Told told) {
  const std::scoped_lock lock(mutex_);
  for (RunFaults* const each : all_) each->ended_by(signal, told);
}

void say_warning(const std::string& line) {
  print_to_stderr(fmt::format("zero_train: warning: {}\n", line));
}

void say(const std::string& line) { print_without_waiting(fmt::format("\n{}\n", line)); }

WatchdogOptions watchdog_options(ProcessState& state) {
  return {.tell =
              [&state](const std::vector<std::string>& lines) {
                state.reported = true;
                print_to_stderr(fmt::format("zero_train: {}\n", fmt::join(lines, "\n")));
              },
          .end = [] { ::_exit(exit_status::kFault); },
          .warn = say_warning};
}

Console make_console(Console::Mode mode, ProcessState& state) {
  return {stdout,
          mode,
          {.hurries = [&state] { return state.signals.asked().ending != 0; },
           .gone =
               [&state] {
                 say_warning(fmt::format(
                     "nobody reads standard output any more; the run goes on, {}: Ctrl-C or "
                     "SIGTERM ends it",
                     state.progress.logs ? "and its log too" : "without a log (run.log)"));
               },
           .failed =
               [&state](int error) {
                 state.output_error = error;
                 say_warning(
                     fmt::format("standard output cannot be written: {}; the run goes on, "
                                 "and ends with status 1",
                                 std::strerror(error)));
               }}};
}

std::string ended_by(int signal, Start::By start, const RunProgress& progress) {
  const std::string_view terminated =
      start == Start::By::mpirun ? "SIGTERM (mpirun passes Ctrl-C on as SIGTERM)" : "SIGTERM";
  return fmt::format(
      "ended by {}{}{}{}", signal == SIGINT ? "SIGINT" : terminated,
      progress.steps_done == 0 ? " before the first step"
      : progress.logs          ? "; the log holds every step done"
                               : fmt::format(" after step {}", progress.steps_done.load()),
      progress.weights_due
          ? "; the weights were not saved: run.save_weights is written after the last step"
          : "",
      progress.kept());
}

}  // namespace zero
