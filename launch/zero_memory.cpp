// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#include <CLI/CLI.hpp>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <string>

#include "base/error.h"
#include "base/message_text.h"
#include "launch/memory/log_watch.h"
#include "launch/memory/machine_memory.h"
#include "launch/memory/memory_picture.h"
#include "launch/memory/memory_report.h"
#include "launch/memory/memory_series.h"
#include "launch/process/command_line.h"
#include "launch/process/quantity.h"
#include "launch/process/versions.h"
#include "launch/telemetry/output.h"

namespace {

/// The status of leaks that were found.
constexpr int kFound = 2;

struct Arguments {
  std::string path{};
  std::string other{};
  std::string html{};
  std::string threshold = "1KiB";
  std::int64_t top = 20;
};

void print_text(const std::string& text) { zero::print(zero::printable_text(text)); }

void take_top(CLI::App& command, Arguments& given) {
  command.add_option("--top", given.top, "labels to list, the largest first")
      ->check(CLI::Range(std::int64_t{1}, std::int64_t{1'000'000}))
      ->capture_default_str();
}

int watch(const std::string& path) {
  int failure = 0;
  zero::Console console(stdout, zero::output_mode(),
                        {.failed = [&failure](int error) { failure = error; }});
  zero::watch_log(path, console, [&failure] { return failure == 0; });
  ZERO_CHECK(failure == 0, "standard output: cannot write: {}", std::strerror(failure));
  return 0;
}

void add_commands(zero::Commands& commands, Arguments& given) {
  CLI::App& report = commands.add(
      "report", "bytes by class, the peak with its labels, the largest sum of each phase", [&] {
        const zero::MemorySeries series = zero::read_memory(given.path);
        if (!given.html.empty()) zero::save_memory_picture(series, given.top, given.html);
        print_text(zero::memory_report::summary(series, given.top));
        return 0;
      });
  report.add_option("FILE", given.path, "a trace of memory, or a log")->required();
  report.add_option("--html", given.html,
                    "write a picture too: one HTML file that needs no network, bytes by class "
                    "over time, the phases below, the peak's labels; of files that exist, "
                    "only an earlier picture is replaced");
  take_top(report, given);
  CLI::App& diff =
      commands.add("diff", "two runs' classes at peak and end, and labels that differ", [&] {
        print_text(zero::memory_report::difference(zero::read_memory(given.path),
                                                   zero::read_memory(given.other), given.top));
        return 0;
      });
  diff.add_option("A", given.path, "a trace of memory, or a log")->required();
  diff.add_option("B", given.other, "another")->required();
  take_top(diff, given);
  CLI::App& leaks =
      commands.add("leaks", "what kept growing from step to step: class, label, unit", [&] {
        const std::int64_t threshold = zero::bytes_with_unit(given.threshold, "--threshold");
        const auto found = zero::memory_report::leaks(zero::read_memory(given.path), threshold);
        print_text(found.text);
        return found.found ? kFound : 0;
      });
  leaks.add_option("FILE", given.path, "a trace of memory; a log has classes alone")->required();
  leaks
      .add_option("--threshold", given.threshold,
                  "least growth to tell of, in " + zero::byte_units())
      ->capture_default_str();
  commands
      .add("watch", "follow a run's log: its memory behind each step",
           [&] { return watch(given.path); })
      .add_option("LOG", given.path, "as run.log names it")
      ->required();
}

}  // namespace

int main(int argc, char** argv) {
  CLI::App app{
      "Shows memory: without a command that of this host and its GPUs now, and what zero_ programs "
      "of this user have of it; with one, what a run took over time, by its trace "
      "(zero_train --memory-trace FILE) or its log (run.log).\n"
      "Status: 0; 1 if the command could not be done, or its answer not be written; 2 if leaks "
      "were found.",
      "zero_memory"};
  app.set_version_flag("--version", [] { return zero::version_text(); });
  Arguments given;
  zero::Commands commands(app, [] {
    print_text(zero::machine_text(zero::machine_memory()));
    return 0;
  });
  add_commands(commands, given);
  return zero::run_program(app, argc, argv, {}, [&] { return commands.act(); });
}
