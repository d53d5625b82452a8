// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <chrono>
#include <exception>
#include <thread>

#include "collectives/backends.h"
#include "launch/option.h"
#include "launch/process.h"
#include "launch/train_config.h"
#include "launch/train_program.h"

namespace {

/// Reports an error that maybe only this rank knows of and ends all ranks. A rank waits for those
/// below it: where several fail alike, the first has then ended the job before the others speak.
[[noreturn]] void end_job(const std::string& message, int rank, int world) {
  std::this_thread::sleep_for(std::chrono::milliseconds(200 * std::min(rank, 8)));
  if (world == 1 || message.starts_with("[rank ")) {
    fmt::print(stderr, "zero_train: {}\n", message);
  } else {
    fmt::print(stderr, "zero_train: [rank {}] {}\n", rank, message);
  }
  std::fflush(stderr);
  zero::mpi::abort(1);
}

void sleep_where_crowded(const zero::TrainFlags& flags, const zero::LaunchedRank& me, char** argv) {
  std::int64_t threads = 1;
  try {
    threads = zero::Configuration::read(flags.config, flags.overrides).integer("run.threads");
  } catch (const zero::Error&) {
    return;  // training reads it again, and reports
  }
  zero::make_waiting_threads_sleep(argv, static_cast<int>(threads), me.local_world);
}

int run(const zero::TrainFlags& flags, const zero::LaunchedRank& me, int argc, char** argv) {
  const int world = flags.world > 0 ? flags.world : me.world;
  if (flags.print_config || flags.plan) {
    const std::string text =
        flags.plan ? zero::printed_plan(flags, world) : zero::printed_config(flags, world);
    if (me.rank == 0) fmt::print("{}", text);
    return 0;
  }
  sleep_where_crowded(flags, me, argv);
  const zero::SignalWatcher watcher([rank = me.rank](int signal) {
    if (rank == 0)
      fmt::print(stderr, "\nzero_train: ended by {}\n", signal == SIGINT ? "SIGINT" : "SIGTERM");
  });
  return zero::train(flags, &argc, &argv);
}

void add_flags(CLI::App& app, zero::TrainFlags& flags) {
  app.add_option("--config", flags.config, "JSON file in DeepSpeed's sections and our own")
      ->required();
  app.add_option("--set", flags.overrides, "key.path=value: replaces a value of the file")
      ->allow_extra_args(false);
  app.add_flag("--print-config", flags.print_config,
               "print every effective value and where it came from, and end");
  app.add_flag(
      "--plan", flags.plan,
      "print memory, schedule and communication, and end; nothing is trained or allocated");
  app.add_flag("--json", flags.json, "with --plan: as JSON");
  app.add_option("--world", flags.world, "with --plan or --print-config: the number of ranks")
      ->check(CLI::Range(1, 1 << 20));
  app.set_version_flag("--version", [] { return zero::version_text(); });
  app.footer([] { return zero::option_help(); });
}

}  // namespace

int main(int argc, char** argv) {
  const zero::LaunchedRank me = zero::launched_rank();
  CLI::App app{
      "Trains a language model with ZeRO stages 0 to 3: mpirun -np N zero_train --config FILE",
      "zero_train"};
  zero::TrainFlags flags;
  try {
    add_flags(app, flags);
    app.parse(argc, argv);
    return run(flags, me, argc, argv);
  } catch (const CLI::Success& success) {
    return me.rank == 0 ? app.exit(success) : 0;
  } catch (const CLI::ParseError& error) {
    end_job(fmt::format("{}; see zero_train --help", error.what()), me.rank, 1);
  } catch (const std::exception& error) {
    end_job(error.what(), me.rank, me.world);
  }
}
