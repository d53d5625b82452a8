// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <exception>
#include <functional>
#include <string>
#include <utility>

#include "base/error.h"
#include "base/message_text.h"
#include "launch/memory/log_watch.h"
#include "launch/memory/machine_memory.h"
#include "launch/memory/memory_picture.h"
#include "launch/memory/memory_report.h"
#include "launch/memory/memory_series.h"
#include "launch/process/command_line.h"
#include "launch/process/process.h"
#include "launch/process/quantity.h"
#include "launch/telemetry/output.h"

namespace {

/// The status of an error.
constexpr int kTrouble = 1;
/// That of leaks that were found.
constexpr int kFound = 2;

struct Arguments {
  std::string path{};
  std::string other{};
  std::string html{};
  std::string threshold = "1KiB";
  std::int64_t top = 20;
};

void print_text(const std::string& text) { zero::print(zero::printable_text(text)); }

/// The program's commands: how each takes its arguments, what it does. Each returns the status.
class Commands {
 public:
  explicit Commands(CLI::App& app) : app_(app) {
    add_report();
    add_others();
  }
  Commands(const Commands&) = delete;
  Commands& operator=(const Commands&) = delete;

  /// Does what the parsed command line asks for.
  int act() const { return chosen_(); }

 private:
  /// The command's callback chooses `act`; its arguments are for the caller to add.
  CLI::App& add(const char* name, const char* help, std::function<int()> act) {
    CLI::App* const command = app_.add_subcommand(name, help);
    command->callback([this, act = std::move(act)] { chosen_ = act; });
    return *command;
  }
  void take_top(CLI::App& command) {
    command.add_option("--top", given_.top, "labels to list, the largest first")
        ->check(CLI::Range(std::int64_t{1}, std::int64_t{1'000'000}))
        ->capture_default_str();
  }

  void add_report() {
    CLI::App& report =
        add("report", "bytes by class, the peak with its labels, the largest sum of each phase",
            [&] { return act_report(); });
    report.add_option("FILE", given_.path, "a trace of memory, or a log")->required();
    report.add_option("--html", given_.html,
                      "write a picture too: one HTML file that needs no network, bytes by class "
                      "over time, the phases below, the peak's labels; of files that exist, "
                      "only an earlier picture is replaced");
    take_top(report);
  }

  void add_others() {
    CLI::App& diff = add("diff", "two runs' classes at peak and end, and labels that differ",
                         [&] { return act_diff(); });
    diff.add_option("A", given_.path, "a trace of memory, or a log")->required();
    diff.add_option("B", given_.other, "another")->required();
    take_top(diff);
    CLI::App& leaks = add("leaks", "what kept growing from step to step: class, label, unit",
                          [&] { return act_leaks(); });
    leaks.add_option("FILE", given_.path, "a trace of memory; a log has classes alone")->required();
    leaks
        .add_option("--threshold", given_.threshold,
                    "least growth to tell of, in " + zero::byte_units())
        ->capture_default_str();
    CLI::App& watch = add("watch", "follow a run's log: its memory behind each step",
                          [&] { return act_watch(); });
    watch.add_option("LOG", given_.path, "as run.log names it")->required();
  }

  int act_report() const {
    const zero::MemorySeries series = zero::read_memory(given_.path);
    if (!given_.html.empty()) zero::save_memory_picture(series, given_.top, given_.html);
    print_text(zero::memory_report::summary(series, given_.top));
    return 0;
  }

  int act_diff() const {
    const zero::MemorySeries a = zero::read_memory(given_.path);
    const zero::MemorySeries b = zero::read_memory(given_.other);
    print_text(zero::memory_report::difference(a, b, given_.top));
    return 0;
  }

  int act_leaks() const {
    const std::int64_t threshold = zero::bytes_with_unit(given_.threshold, "--threshold");
    const auto leaks = zero::memory_report::leaks(zero::read_memory(given_.path), threshold);
    print_text(leaks.text);
    return leaks.found ? kFound : 0;
  }

  int act_watch() const {
    int failure = 0;
    zero::Console console(
        stdout, zero::on_terminal() ? zero::Console::Mode::terminal : zero::Console::Mode::lines,
        {.failed = [&failure](int error) { failure = error; }});
    zero::watch_log(given_.path, console, [&failure] { return failure == 0; });
    ZERO_CHECK(failure == 0, "standard output: cannot write: {}", std::strerror(failure));
    return 0;
  }

  CLI::App& app_;
  Arguments given_;
  std::function<int()> chosen_ = [] {
    print_text(zero::machine_text(zero::machine_memory()));
    return 0;
  };
};

}  // namespace

int main(int argc, char** argv) {
  CLI::App app{
      "Shows memory: without a command that of this host and its GPUs now, and what zero_ programs "
      "of this user have of it; with one, what a run took over time, by its trace "
      "(zero_train --memory-trace FILE) or its log (run.log).\n"
      "Status: 0; 1 if the command could not be done, or its answer not be written; 2 if leaks "
      "were found.",
      "zero_memory"};
  app.require_subcommand(0, 1);
  app.set_version_flag("--version", [] { return zero::version_text(); });
  const Commands commands(app);
  try {
    zero::keep_streams_closed();
    zero::report_large_files();
    if (const auto asked = zero::parse_command_line(app, argc, argv)) {
      zero::print(*asked);
      return 0;
    }
    return commands.act();
  } catch (const CLI::ParseError& error) {
    zero::print_to_stderr(
        fmt::format("zero_memory: {}; see zero_memory --help\n", zero::parse_failure(app, error)));
  } catch (const std::exception& error) {
    zero::print_to_stderr(fmt::format("zero_memory: {}\n", error.what()));
  }
  return kTrouble;
}
