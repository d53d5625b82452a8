// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#include "launch/train/train_program.h"

#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <csignal>
#include <cstring>
#include <limits>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string_view>

#include "base/error.h"
#include "checkpoint/checkpoint_folder.h"
#include "collectives/agreement.h"
#include "collectives/backends.h"
#include "collectives/host_values.h"
#include "files/file_system.h"
#include "launch/data/batches.h"
#include "launch/process/device_choice.h"
#include "launch/process/process.h"
#include "launch/process/signals.h"
#include "launch/process/versions.h"
#include "launch/rendezvous/cores.h"
#include "launch/rendezvous/same_build.h"
#include "launch/telemetry/output.h"
#include "launch/train/file_checks.h"
#include "launch/train/memory_fit.h"
#include "launch/train/plan.h"
#include "launch/train/run_device.h"
#include "launch/train/run_lock.h"
#include "launch/train/run_observers.h"
#include "launch/train/tier_ladder.h"
#include "launch/train/tier_lines.h"
#include "launch/train/tokenizer_files.h"
#include "launch/train/trainer.h"

namespace zero {
namespace {

int ranks_of_host(const TrainFlags& flags, int world) {
  return flags.start.world == world ? flags.start.local_world : world;
}

/// "auto" for the device becomes this process's own choice.
void choose_run_device(Configuration& values, const TrainFlags& flags, int world) {
  if (!values.is_null("run.device")) return;
  const RanksAre are =
      flags.start.by == Start::By::threads ? RanksAre::threads : RanksAre::processes;
  const DeviceChoice choice = choose_device(device_facts(ranks_of_host(flags, world), are));
  values.resolve("run.device", choice.kind == DeviceKind::cuda ? "cuda" : "cpu", choice.why);
}

/// The user's configuration. Refused for everything at once, what does not fit together too.
Configuration read_values(const TrainFlags& flags, int world) {
  std::vector<std::string> overrides = flags.overrides;
  if (flags.profile) overrides.emplace_back("run.profile=true");
  // As JSON, so that a file name is not parsed as a number.
  if (!flags.trace.empty()) overrides.push_back("run.trace=" + nlohmann::json(flags.trace).dump());
  if (!flags.memory_trace.empty()) {
    overrides.push_back("run.memory_trace=" + nlohmann::json(flags.memory_trace).dump());
  }
  Refusals refusals;
  Configuration values = Configuration::read(flags.config, overrides, refusals);
  choose_run_device(values, flags, world);
  if (!refusals.empty()) {  // raises them, with what does not fit
    make_train_config(values, world, ranks_of_host(flags, world), std::move(refusals));
  }
  return values;
}

TrainConfig configured(const TrainFlags& flags, Configuration values, int world) {
  return make_train_config(std::move(values), world, ranks_of_host(flags, world));
}

/// The configuration as one process sees it, without asking the other ranks; tiers that are "auto"
/// by the memory that it finds.
TrainConfig configured_alone(const TrainFlags& flags, int world) {
  TrainConfig config = configured(flags, read_values(flags, world), world);
  if (!tiers_are_auto(config.values)) return config;
  const BackendKind host = planned_backend(flags.start, world);
  fit_memory(config, backend_on(config.run.device, config, host), room_alone(config, flags.start));
  return config;
}

/// Everything that can be checked before memory is allocated.
struct Prepared {
  std::optional<TrainConfig> config{};
  std::optional<Batches> batches{};
  std::unique_ptr<RunLock> folder_lock{};  ///< the first rank's
  std::unique_ptr<RunLock> log_lock{};     ///< the first rank's
  std::unique_ptr<RunLog> log{};
  std::string warning{};  ///< the same on all ranks; empty: none
  std::string note{};     ///< the first rank's; empty: none
};

/// Agrees on the fewest threads that "auto" found on any rank: hosts may differ in cores and in
/// ranks. Collective.
void agree_on_threads(Communicator& communicator, Device& device, TrainConfig& config) {
  const bool worked_out = config.values.at("run.threads").source.starts_with("auto: ");
  std::int64_t threads = worked_out ? config.run.threads : std::numeric_limits<std::int64_t>::max();
  host_all_reduce(communicator, device, View::of(std::span<std::int64_t>(&threads, 1)),
                  ReduceOp::min, {"run.threads", {}});
  if (!worked_out || threads == config.run.threads) return;
  config.run.threads = static_cast<int>(threads);
  config.values.resolve("run.threads", threads, "auto: the fewest of all ranks");
}

/// Prints a warning while the run goes on. Any rank may call it, on any thread.
void say_warning(const std::string& line) {
  print_to_stderr(fmt::format("zero_train: warning: {}\n", line));
}

WaitLimits wait_limits(const TrainConfig& config) {
  WaitLimits limits = config.run.waits;
  limits.warn = say_warning;
  return limits;
}

Prepared prepare_run(const TrainFlags& flags, Communicator& communicator) {
  Prepared prepared;
  const auto device = cpu::open();
  communicator.set_wait_limits({.warn = say_warning});
  require_same_build(communicator);
  std::optional<Configuration> values;
  agree(communicator, *device, "configuration", [&] {
    ZERO_CHECK(flags.error.empty(), "{}; see zero_train --help", flags.error);
    values.emplace(read_values(flags, communicator.size()));
  });
  prepared.warning = agree_on_device(communicator, *values).value_or("");
  if (values->text("run.device") == "cpu") check_cpu_ranks_can_talk(communicator);
  agree(communicator, *device, "configuration", [&] {
    prepared.config.emplace(configured(flags, std::move(*values), communicator.size()));
  });
  agree_on_threads(communicator, *device, *prepared.config);
  const TrainConfig& config = *prepared.config;
  communicator.set_wait_limits(wait_limits(config));
  std::map<std::string, std::string> same = config.values.effective();
  same["version"] = libraries_text(config.run.device);
  std::replace(same["version"].begin(), same["version"].end(), '\n', ';');
  require_agreement(communicator, *device, same);
  agree(communicator, *device, "run.checkpoint.folder", [&] {
    if (communicator.rank() != 0) return;
    make_checkpoint_folder(config.checkpoints);
    prepared.folder_lock = lock_checkpoints(config.checkpoints);
  });
  std::map<std::string, std::string> files;
  agree(communicator, *device, "data", [&] {
    check_files(config);
    prepared.batches.emplace(config, communicator.rank());
    files = prepared.batches->fingerprint();
    files.merge(weight_file_fingerprints(config));
    if (communicator.rank() == 0) prepared.note = check_data_tokenizer(config, *prepared.batches);
  });
  require_agreement(communicator, *device, files);
  agree(communicator, *device, "run.log", [&] {
    if (communicator.rank() != 0 || config.run.log.empty()) return;
    prepared.log_lock = lock_log(config.run.log);
    prepared.log = std::make_unique<RunLog>(config.run.log);
  });
  return prepared;
}

/// The state of the process that its signal handling reads.
struct ProcessState {
  std::atomic<bool> reported{false};  ///< a failure was reported
  std::atomic<int> output_error{0};   ///< for which standard output lacks a text; 0: none
  RunProgress progress{};
  Signals signals{};
  Signals::Time started = std::chrono::steady_clock::now();
};

/// One run and everything it owns. If only this rank knows of a failure, the run is never
/// destroyed: its threads may wait for ranks that will not come.
class Run {
 public:
  Run(Communicator& communicator, Console& console, ProcessState& state)
      : communicator_(communicator), console_(console), state_(state) {}

  int operator()(const TrainFlags& flags) {
    prepared_ = prepare_run(flags, communicator_);
    plan_memory_limit(*prepared_.config);
    const TrainConfig& config = *prepared_.config;
    state_.progress.saves = !config.checkpoints.folder.empty();
    state_.progress.logs = !config.run.log.empty();
    state_.progress.weights_due = !config.run.save_weights.empty();
    if (const std::string note = config.values.note(); !note.empty()) console_.line(note);
    for (const std::string& warning : config.warnings) console_.line("warning: " + warning);
    if (!prepared_.warning.empty()) console_.line("warning: " + prepared_.warning);
    for (const auto* lock : {&prepared_.folder_lock, &prepared_.log_lock}) {
      if (*lock && !(*lock)->warning().empty()) console_.line("warning: " + (*lock)->warning());
    }
    for (const std::string& line : prepared_.batches->lines()) console_.line(line);
    if (!prepared_.note.empty()) console_.line("warning: " + prepared_.note);
    agree(communicator_, *cpu::open(), "run.memory_trace",
          [&] { observers_.emplace(config, communicator_.rank()); });
    for (const std::string& line : observers_->lines()) console_.line(line);
    device_ = std::make_unique<RunDevice>(config, communicator_, observers_->instruments());
    device_->world().set_wait_limits(wait_limits(config));
    const PlacementReport placement = judge_placements(
        gather_placements(communicator_, *cpu::open(), config.run.threads), process_environment());
    for (const std::string& warning : placement.warnings) console_.line("warning: " + warning);
    if (placement.warnings.empty() && !placement.shared.empty()) console_.line(placement.shared);
    if (auto* const own = observers_->instruments()) listening_.emplace(device_->world(), *own);
    mesh_ = std::make_unique<Mesh>(device_->world(), config.mesh);
    trainer_ = std::make_unique<Trainer>(TrainerParts{.config = config,
                                                      .batches = *prepared_.batches,
                                                      .mesh = *mesh_,
                                                      .device = device_->device(),
                                                      .console = console_,
                                                      .log = prepared_.log.get(),
                                                      .folder_lock = prepared_.folder_lock.get(),
                                                      .plans = plans_,
                                                      .cores_are_shared = !placement.shared.empty(),
                                                      .instruments = observers_->instruments(),
                                                      .memory_trace = observers_->memory_trace(),
                                                      .progress = &state_.progress,
                                                      .signals = &state_.signals,
                                                      .started = state_.started});
    return trainer_->run();
  }

 private:
  /// Plans alone, so all ranks find the same.
  void plan_memory_limit(TrainConfig& config) {
    const BackendKind backend = backend_on(config.run.device, config, communicator_.backend());
    const RankRoom room = room_of_all(config, communicator_);
    try {
      plans_ = fit_memory(config, backend, room);
      check_memory_limit(config, backend, plans_);
    } catch (const Error& error) {
      throw AgreedError(error.what());
    }
    for (const auto& lines : {recompute_lines(config), tier_lines(config)}) {
      for (const std::string& line : lines) console_.line(line);
    }
  }

  Communicator& communicator_;
  Console& console_;
  ProcessState& state_;
  Prepared prepared_;
  RankPlans plans_;
  std::optional<RunObservers> observers_;
  std::unique_ptr<RunDevice> device_;
  std::optional<Listening> listening_;
  std::unique_ptr<Mesh> mesh_;
  std::unique_ptr<Trainer> trainer_;
};

/// Prints a line below the progress line, on the thread that waits for signals.
void say(const std::string& line) { print_without_waiting(fmt::format("\n{}\n", line)); }

/// Standard output of a rank. A run whose output is full waits for its reader, but not with its
/// end; one whose reader is gone, or whose disk is full, trains on, since its figures are in its
/// log.
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

/// The last words of a process that `signal` ends.
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

int train_as(Communicator& communicator, const TrainFlags& flags, ProcessState& state) {
  const bool first = communicator.rank() == 0;
  const Console::Mode mode = on_terminal() ? Console::Mode::terminal : Console::Mode::lines;
  Console console = make_console(first ? mode : Console::Mode::silent, state);
  Run run(communicator, console, state);
  try {
    const int status = run(flags);
    if (status != 0 || !first || state.output_error == 0) return status;
    print_to_stderr(fmt::format(
        "zero_train: the run is done, but its report is not whole: standard output: {}{}\n",
        std::strerror(state.output_error), state.progress.logs ? "; its log has the figures" : ""));
  } catch (const AgreedError& error) {
    state.reported = true;
    console.end_progress();
    if (first) print_to_stderr(fmt::format("zero_train: {}\n", error.what()));
  } catch (const std::exception& error) {
    state.reported = true;
    console.end_progress();
    end_job("zero_train", error.what(), communicator.rank(), communicator.size());
  }
  return 1;
}

/// Whether this process computes on the CPU, as far as it can tell alone.
bool is_of_cpu(const TrainFlags& flags) {
  try {
    return read_values(flags, flags.start.world).text("run.device") == "cpu";
  } catch (const Error&) {
    return false;  // reported once, when the ranks have met
  }
}

}  // namespace

std::string printed_config(const TrainFlags& flags, int world) {
  return configured_alone(flags, world).values.dump();
}

std::string printed_value(const TrainFlags& flags) {
  ZERO_CHECK(flags.error.empty(), "{}; see zero_train --help", flags.error);
  const Configuration values = Configuration::read(flags.config, flags.overrides);
  const nlohmann::json value = values.at(canonical_path(flags.print_value)).value;
  if (value.is_null()) return "";
  return (value.is_string() ? value.get<std::string>() : value.dump()) + "\n";
}

PrintedPlan printed_plan(const TrainFlags& flags, int world) {
  TrainConfig config = configured_alone(flags, world);
  const BackendKind backend =
      backend_on(config.run.device, config, planned_backend(flags.start, world));
  const RankPlans plans = choose_recompute(config, backend);
  const Plan plan = make_plan(config, backend);
  PrintedPlan printed{.text = flags.json ? plan.json().dump(2) + "\n" : ""};
  if (!flags.json) {
    for (const std::string& line : config.warnings) printed.text += "warning: " + line + "\n";
    for (const auto& lines : {recompute_lines(config), tier_lines(config)}) {
      for (const std::string& line : lines) printed.text += line + "\n";
    }
    using enum LiveMemory::Labels;
    printed.text += plan.text(flags.labels ? all : largest, flags.schedule);
  }
  try {
    check_memory_limit(config, backend, plans);
  } catch (const Error& error) {
    printed.over_limit = error.what();
  }
  return printed;
}

int train(const TrainFlags& flags, int* argc, char*** argv) {
  ::signal(SIGPIPE, SIG_IGN);  // Console tells of it, and the run goes on
  ProcessState state;
  const SignalWatcher watcher([&state, launched = flags.start.rank,
                               by = flags.start.by](int signal) {
    using enum SignalWatcher::AfterSignal;
    const Signals::Answer answer = state.signals.arrived(signal, std::chrono::steady_clock::now());
    if (launched == 0 && !answer.line.empty()) say(answer.line);
    if (!answer.ends_process) return go_on;
    // mpirun drops unread output when the last rank ends: the other ranks leave it time to
    // read.
    if (launched != 0) std::this_thread::sleep_for(std::chrono::milliseconds(300));
    if (launched == 0 && !state.reported) say(ended_by(signal, by, state.progress));
    return end;
  });
  // Before the ranks are asked for what they need to meet.
  const bool of_cpu = is_of_cpu(flags);
  if (of_cpu) check_cpu_ranks_can_talk(flags.start);
  const auto report = [](const std::string& text) {
    print_to_stderr(fmt::format("zero_train: {}\n", text));
  };
  return run_ranks(
      flags.start, of_cpu ? BetweenHosts::mpi : BetweenHosts::nccl, argc, argv,
      [&](Communicator& communicator) { return train_as(communicator, flags, state); }, report);
}

}  // namespace zero
