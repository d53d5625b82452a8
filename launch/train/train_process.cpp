// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#include "launch/train/train_process.h"

#include <fmt/format.h>

#include <csignal>
#include <cstdio>
#include <cstring>
#include <string_view>

#include "collectives/agreement.h"
#include "engine/step_report.h"

namespace zero {

void say_warning(const std::string& line) {
  print_to_stderr(fmt::format("zero_train: warning: {}\n", line));
}

void say(const std::string& line) { print_without_waiting(fmt::format("\n{}\n", line)); }

Console make_console(Console::Mode mode, TrainProcess& process) {
  return {stdout,
          mode,
          {.hurries = [&process] { return process.signals.asked().ending != 0; },
           .gone =
               [&process] {
                 say_warning(fmt::format(
                     "nobody reads standard output any more; the run goes on, {}: Ctrl-C or "
                     "SIGTERM ends it",
                     process.progress.logs ? "and its log too" : "without a log (run.log)"));
               },
           .failed =
               [&process](int error) {
                 process.output_error = error;
                 say_warning(
                     fmt::format("standard output cannot be written: {}; the run goes on, "
                                 "and ends with status 1",
                                 std::strerror(error)));
               }}};
}

std::string told_of(const AgreedError& error, const RunProgress& progress) {
  const bool lost = dynamic_cast<const ValuesLost*>(&error) != nullptr;
  return fmt::format("zero_train: {}\n{}", error.what(), lost ? progress.next_step() + "\n" : "");
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
