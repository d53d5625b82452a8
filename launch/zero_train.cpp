// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0

#include <CLI/CLI.hpp>
#include <algorithm>
#include <exception>
#include <optional>
#include <string>
#include <vector>

#include "base/error.h"
#include "launch/config/option.h"
#include "launch/process/command_line.h"
#include "launch/process/configuration_error.h"
#include "launch/process/cpu_limit.h"
#include "launch/process/exit_status.h"
#include "launch/process/open_files.h"
#include "launch/process/process.h"
#include "launch/process/signals.h"
#include "launch/process/versions.h"
#include "launch/rendezvous/start.h"
#include "launch/simulate/simulate_program.h"
#include "launch/telemetry/output.h"
#include "launch/train/configured_run.h"
#include "launch/train/elastic_ranks.h"
#include "launch/train/train_program.h"

namespace {

int run(const zero::TrainFlags& flags, int argc, char** argv) {
  if (flags.error.empty() && !flags.simulate.empty()) {
    const std::string text = zero::checking_configuration([&] {
      return zero::simulated({.config = flags.config,
                              .overrides = flags.overrides,
                              .simulate = flags.simulate,
                              .trace = flags.trace,
                              .json = flags.json});
    });
    if (flags.start.rank == 0) zero::print(text);
    return zero::exit_status::kOk;
  }
  const int started = std::max(flags.start.world, flags.start.tasks_to_start);
  const int came = flags.world > 0 ? flags.world : started;
  if (flags.error.empty() && (flags.print_config || flags.plan)) {
    const auto [text, over_limit] = zero::checking_configuration([&] {
      const int world = zero::ranks_taking_part(flags, came);
      return flags.plan ? zero::printed_plan(flags, world)
                        : zero::PrintedPlan{zero::printed_config(flags, world), ""};
    });
    if (flags.start.rank == 0) zero::print(text);
    ZERO_CHECK(over_limit.empty(), "{}", over_limit);  // exit_status::kNo
    return zero::exit_status::kOk;
  }
  zero::raise_open_file_limit();
  return zero::train(flags, &argc, &argv);
}

void add_flags(CLI::App& app, zero::TrainFlags& flags) {
  app.add_option("--config,--deepspeed_config", flags.config,
                 "JSON file in DeepSpeed's sections and our own; must be given");
  app.add_option("--set", flags.overrides,
                 "key.path=value ...: replaces values of the file; may be given again");
  app.add_flag("--print-config", flags.print_config,
               "print every effective value and where it came from, and end");
  app.add_option(
      "--print-value", flags.print_value,
      "print the value that the file or --set gives this key, plainly, or its default, and end");
  app.add_flag("--plan", flags.plan,
               "print memory (allocated, and live in each phase of a step) and communication, and "
               "end; nothing is trained or allocated");
  app.add_flag("--labels", flags.labels,
               "with --plan: name every tensor that is live at the peak of a step, not only the "
               "largest; with --json they are always named");
  app.add_flag("--schedule", flags.schedule,
               "with --plan: print what a micro-batch gathers, computes and reduces, in order; "
               "with --json it is always there");
  app.add_option(
      "--simulate", flags.simulate,
      "a cluster file, or ranks=1024,cluster=FILE: run a step on a virtual clock, as ranks of that "
      "cluster, print its time, exposed communication and memory, and end; docs/simulator.md");
  app.add_flag("--json", flags.json, "with --plan or --simulate: as JSON");
  app.add_flag("--profile", flags.profile,
               "print where the first rank's time goes, each kind of work beside its limit");
  app.add_option("--trace", flags.trace,
                 "write what all ranks' streams do in a few steps to this file, for Perfetto");
  app.add_option("--memory-trace", flags.memory_trace,
                 "write every charge and release of memory to this file, for zero_memory");
  CLI::Option* const world =
      app.add_option("--world", flags.world, "with --plan or --print-config: the number of ranks")
          ->check(CLI::Range(1, 1 << 20));
  app.add_option("--local_rank,--local-rank", flags.local_rank,
                 "as some launchers pass it; must be LOCAL_RANK");
  zero::add_local_ranks(app, flags.local_ranks)->excludes(world);
  app.set_version_flag("--version", [] { return zero::version_text(); });
  app.footer([] { return zero::option_help() + "\n" + zero::kCpuLimitHelp + "\n"; });
}

/// A launcher that passes the flag sets the variables that a rank takes its place from.
void check_local_rank(int flag) {
  if (flag < 0) return;
  const auto variable = zero::process_environment()("LOCAL_RANK");
  ZERO_CHECK(variable,
             "--local_rank is {}, but LOCAL_RANK is not set; start zero_train by a launcher that "
             "sets RANK, WORLD_SIZE, LOCAL_RANK, MASTER_ADDR and MASTER_PORT",
             flag);
  ZERO_CHECK(*variable == std::to_string(flag),
             "--local_rank is {}, and LOCAL_RANK {}; give both one value, or leave the flag out",
             flag, *variable);
}

/// Refuses flags that are missing or would be ignored.
void check_flags(const zero::TrainFlags& flags) {
  // Checked here: the parser would also report a missing --config if another flag is misspelt.
  if (flags.config.empty()) throw CLI::RequiredError("--config");
  ZERO_CHECK(!flags.plan || !flags.print_config,
             "--plan and --print-config are both given; give one of them");
  const bool simulates = !flags.simulate.empty();
  ZERO_CHECK(
      !simulates || !(flags.plan || flags.print_config || flags.profile || flags.world > 0 ||
                      !flags.memory_trace.empty() || flags.local_ranks >= 1),
      "--simulate is given with --plan, --print-config, --profile, --memory-trace, --world or "
      "--local-ranks; give it without them; the number of ranks is ranks=N in --simulate");
  ZERO_CHECK(flags.plan || simulates || !flags.json,
             "--json is given without --plan or --simulate; add one of them");
  ZERO_CHECK(flags.plan || !flags.labels, "--labels is given without --plan; add --plan");
  ZERO_CHECK(flags.plan || !flags.schedule, "--schedule is given without --plan; add --plan");
  ZERO_CHECK(flags.plan || flags.print_config || flags.world == 0,
             "--world {} is given without --plan or --print-config; add one of them, or, to train "
             "with {} ranks, start zero_train with mpirun -np {} or --local-ranks {}",
             flags.world, flags.world, flags.world, flags.world);
  check_local_rank(flags.local_rank);
}

}  // namespace

int main(int argc, char** argv) {
  zero::hold_save_requests();
  CLI::App app{
      "Trains a language model with ZeRO stages 0 to 3.\n"
      "Several ranks: mpirun -np N zero_train --config FILE; torchrun --no-python, or anything "
      "that sets RANK, WORLD_SIZE, LOCAL_RANK, MASTER_ADDR and MASTER_PORT; srun -K1; or threads "
      "of one process: --local-ranks N.\n"
      "On several hosts without mpirun, all ranks need the same ZERO_JOB_SECRET (openssl rand -hex "
      "32), or a file of it, of mode 0600, in ZERO_JOB_SECRET_FILE.\n"
      "Status: 0; 1 for a fault, which is worth another try (launch/retry.sh); 78 if the same "
      "start will fail again: the command line or the configuration is wrong; 143 or 130 if told "
      "to end. Of --plan 1 if it does not fit. See docs/faults.md.",
      "zero_train"};
  zero::TrainFlags flags;
  std::optional<std::string> asked;
  try {
    add_flags(app, flags);
    zero::limit_cpu(zero::process_environment());
    zero::keep_streams_closed();
    zero::report_large_files();
    asked = zero::parse_command_line(app, argc, argv);
    if (!asked) check_flags(flags);
  } catch (const CLI::ParseError& error) {
    flags.error = zero::parse_failure(app, error);  // with several ranks, one of them reports it
    const std::vector<std::string> extras = app.remaining();
    if (flags.config.empty() && !extras.empty() && !extras.front().starts_with('-')) {
      flags.error += "; write --config " + extras.front();
    }
  } catch (const zero::Error& error) {
    flags.error = error.what();
  }
  try {
    if (asked) {
      if (zero::speaks_for_job()) zero::print(*asked);
      return zero::exit_status::kOk;
    }
    if (!flags.print_value.empty()) {  // scripts ask outside of any job, whatever rank they have
      zero::print(zero::checking_configuration([&] { return zero::printed_value(flags); }));
      return zero::exit_status::kOk;
    }
    flags.start = zero::checking_configuration(
        [&] { return zero::read_start(zero::process_environment(), flags.local_ranks); });
    return run(flags, argc, argv);
  } catch (const std::exception& error) {
    zero::end_job("zero_train", error.what(), flags.start.rank, flags.start.world,
                  zero::exit_status_of(error));
  }
}
