// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#include "launch/train/train_program.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <csignal>
#include <cstring>
#include <limits>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string_view>
#include <utility>

#include "base/error.h"
#include "collectives/agreement.h"
#include "collectives/backends.h"
#include "collectives/host_values.h"
#include "launch/data/batches.h"
#include "launch/faults/fault_injector.h"
#include "launch/flight/flight_folder.h"
#include "launch/process/configuration_error.h"
#include "launch/process/exit_status.h"
#include "launch/process/process.h"
#include "launch/process/signals.h"
#include "launch/process/versions.h"
#include "launch/rendezvous/cores.h"
#include "launch/rendezvous/same_build.h"
#include "launch/telemetry/instruments.h"
#include "launch/telemetry/output.h"
#include "launch/train/configured_run.h"
#include "launch/train/elastic_ranks.h"
#include "launch/train/file_checks.h"
#include "launch/train/memory_fit.h"
#include "launch/train/run_device.h"
#include "launch/train/run_lock.h"
#include "launch/train/run_observers.h"
#include "launch/train/tier_ladder.h"
#include "launch/train/tier_lines.h"
#include "launch/train/tokenizer_files.h"
#include "launch/train/train_process.h"
#include "launch/train/trainer.h"
#include "launch/watch/process_faults.h"

namespace zero {
namespace {

/// What a run has before memory is allocated.
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

WaitLimits wait_limits(const TrainConfig& config) {
  WaitLimits limits = config.run.waits;
  limits.warn = say_warning;
  return limits;
}

/// Makes and locks the places of the run's checkpoints and log. Collective.
void take_places(Communicator& communicator, Prepared& prepared) {
  const TrainConfig& config = *prepared.config;
  const bool first = communicator.rank() == 0;
  agree(communicator, *cpu::open(), "run.checkpoint.folder", [&] {
    if (!first) return;
    make_checkpoint_folder(config);
    prepared.folder_lock = lock_checkpoints(config.checkpoints.folder);
  });
  agree(communicator, *cpu::open(), "run.log", [&] {
    check_places(config);
    if (first) prepared.log_lock = lock_log(config.run.log);
  });
}

/// What all ranks agree on before one of them opens the run's files.
Prepared prepare_run(const TrainFlags& flags, Communicator& communicator) {
  Prepared prepared;
  const auto device = cpu::open();
  communicator.set_wait_limits({.warn = say_warning});
  require_same_build(communicator);
  std::optional<Configuration> values;
  agree(communicator, *device, "configuration", [&] {
    values.emplace(checking_configuration([&] {
      ZERO_CHECK(flags.error.empty(), "{}; see zero_train --help", flags.error);
      return read_values(flags, communicator.size());
    }));
  });
  prepared.warning = agree_on_device(communicator, *values).value_or("");
  if (values->text("run.device") == "cpu") check_cpu_ranks_can_talk(communicator);
  agree(communicator, *device, "configuration", [&] {
    prepared.config.emplace(checking_configuration(
        [&] { return configured(flags, std::move(*values), communicator.size()); }));
  });
  agree_on_threads(communicator, *device, *prepared.config);
  const TrainConfig& config = *prepared.config;
  communicator.set_wait_limits(wait_limits(config));
  std::map<std::string, std::string> same = config.values.effective();
  same["version"] = libraries_text(config.run.device);
  std::replace(same["version"].begin(), same["version"].end(), '\n', ';');
  require_agreement(communicator, *device, same);
  take_places(communicator, prepared);
  return prepared;
}

/// Opens data and log, and checks all other files. Collective.
void open_files(Communicator& communicator, Prepared& prepared) {
  const TrainConfig& config = *prepared.config;
  const bool first = communicator.rank() == 0;
  std::map<std::string, std::string> files;
  agree(communicator, *cpu::open(), "data", [&] {
    check_files(config);
    prepared.batches.emplace(config, communicator.rank());
    files = prepared.batches->fingerprint();
    files.merge(weight_file_fingerprints(config));
    if (first) prepared.note = check_data_tokenizer(config, *prepared.batches);
  });
  require_agreement(communicator, *cpu::open(), files);
  agree(communicator, *cpu::open(), "run.log", [&] {
    if (first && !config.run.log.empty()) prepared.log = std::make_unique<RunLog>(config.run.log);
  });
}

/// One run and everything it owns. If only this rank knows of a failure, the run is never
/// destroyed: its threads may wait for ranks that will not come.
class Run {
 public:
  Run(Communicator& communicator, Console& console, TrainProcess& process)
      : communicator_(communicator), console_(console), process_(process) {}

  Run(const Run&) = delete;
  Run& operator=(const Run&) = delete;

  int operator()(const TrainFlags& flags) {
    prepared_ = prepare_run(flags, communicator_);
    const TrainConfig& config = *prepared_.config;
    process_.progress.saves = !config.checkpoints.folder.empty();
    process_.progress.logs = !config.run.log.empty();
    process_.progress.weights_due = !config.run.save_weights.empty();
    notice_faults(*prepared_.config);
    open_files(communicator_, prepared_);
    plan_memory_limit(*prepared_.config);
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
    if (faults_->injector() != nullptr) device_->attach(*faults_->injector());
    faults_->attach_to(device_->device());
    device_->world().set_wait_limits(wait_limits(config));
    const PlacementReport placement = judge_placements(
        gather_placements(communicator_, *cpu::open(), config.run.threads), process_environment());
    for (const std::string& warning : placement.warnings) console_.line("warning: " + warning);
    if (placement.warnings.empty() && !placement.shared.empty()) console_.line(placement.shared);
    if (auto* const own = observers_->instruments()) listening_.emplace(device_->world(), *own);
    mesh_ = std::make_unique<Mesh>(device_->world(), config.mesh);
    faults_->record(*mesh_, device_->world());
    trainer_ = std::make_unique<Trainer>(
        TrainerParts{.config = config,
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
                     .unit_listeners = faults_->listeners<UnitListener>(),
                     .phase_listeners = faults_->listeners<PhaseListener>(),
                     .progress = &process_.progress,
                     .signals = &process_.signals,
                     .started = process_.started});
    const int status = trainer_->run();
    faults_->end_well();
    return status;
  }

  /// All ranks know of a failure.
  void failed_alike(std::string_view message) noexcept {
    if (faults_) faults_->failed_alike(message);
  }
  /// Perhaps only this rank does: returns what it is to tell. Does not return if the failure only
  /// follows from the fault of another, of which the watchdog tells.
  std::string failing(const std::exception& error) {
    return process_.faults.failing(faults_ ? &*faults_ : nullptr, error);
  }

 private:
  /// From here on: before the first call to a disk that may hold up one rank alone, and behind the
  /// locks of the places in which flight files lie. `config` gets the disk of the faults that the
  /// run is made to meet.
  void notice_faults(TrainConfig& config) {
    const FlightFolder folder{flight_folder(config)};
    std::unique_ptr<FaultInjector> injector;
    agree(communicator_, *cpu::open(), "run.faults",
          [&] { injector = make_fault_injector(config, communicator_); });
    std::optional<ProcessFaults::Starting> starting(std::in_place, process_.faults, folder.path,
                                                    communicator_.rank());
    FlightFile file = create_flight_file(folder, communicator_, *cpu::open());
    process_.progress.flights_in(folder.path);
    std::optional<WatchdogOptions> watchdog;
    if (config.run.watchdog) {
      watchdog = process_.faults.watchdog(config.run.hang_timeout);
      watchdog->hosts = config.run.watchdog_hosts;
    }
    faults_.emplace(communicator_, std::move(file), std::move(watchdog), std::move(injector));
    joined_.emplace(process_.faults, *faults_);
    starting.reset();
    if (!faults_->warning().empty() && communicator_.local_rank() == 0) {
      say_warning(faults_->warning());
    }
    const BackendKind met_by = communicator_.backend();
    faults_->begin(backend_on(config.run.device, config, met_by) == met_by ? "world" : "hosts");
  }
  /// Plans alone, so all ranks find the same.
  void plan_memory_limit(TrainConfig& config) {
    const BackendKind backend = backend_on(config.run.device, config, communicator_.backend());
    const RankRoom room = room_of_all(config, communicator_);
    try {
      plans_ = fit_memory(config, backend, room);
      check_memory_limit(config, backend, plans_);
    } catch (const Error& error) {
      throw ConfigurationError(error.what());
    }
    for (const auto& lines : {recompute_lines(config), tier_lines(config)}) {
      for (const std::string& line : lines) console_.line(line);
    }
  }

  Communicator& communicator_;
  Console& console_;
  TrainProcess& process_;
  Prepared prepared_;
  RankPlans plans_;
  std::optional<RunFaults> faults_;
  std::optional<ProcessFaults::Joined> joined_;
  std::optional<RunObservers> observers_;
  std::unique_ptr<RunDevice> device_;
  std::optional<Listening> listening_;
  std::unique_ptr<Mesh> mesh_;
  std::unique_ptr<Trainer> trainer_;
};

int train_as(Communicator& communicator, const TrainFlags& flags, TrainProcess& process) {
  const bool first = communicator.rank() == 0;
  Console console = make_console(first ? output_mode() : Console::Mode::silent, process);
  Run run(communicator, console, process);
  int failed = exit_status::kFault;
  try {
    const int status = run(flags);
    if (status != exit_status::kOk || !first || process.output_error == 0) return status;
    print_to_stderr(fmt::format(
        "zero_train: the run is done, but its report is not whole: standard output: {}{}\n",
        std::strerror(process.output_error),
        process.progress.logs ? "; its log has the figures" : ""));
  } catch (const AgreedError& error) {
    run.failed_alike(error.what());
    process.faults.told();
    console.end_progress();
    if (first) print_to_stderr(told_of(error, process.progress));
    failed = exit_status_of(error);
  } catch (const std::exception& error) {
    const std::string message = run.failing(error);
    console.end_progress();
    end_job("zero_train", message, communicator.rank(), communicator.size());
  }
  return failed;
}

/// Waits until all ranks that came are done. A rank that took no part says nothing of a fault:
/// those that did have told of it.
void meet_at_end(Communicator& came, bool idle) {
  try {
    all_gather_texts(came, *cpu::open(), "done", "run.elastic");
  } catch (const std::exception&) {
    if (idle) ::_exit(exit_status::kFault);
    throw;
  }
}

/// As a rank that mpirun started, which ends with all others: one that takes no part waits for
/// them, and a signal to all ranks does not end it before they have saved.
int train_elastic(Communicator& came, TrainFlags flags, TrainProcess& process) {
  const ElasticPart part = elastic_part(came, flags);
  if (!part.ranks) return train_as(came, flags, process);
  int status = exit_status::kOk;
  if (part.idle) {
    if (part.ranks->rank() == 0) {
      print_without_waiting(elastic_line(came.size(), came.size() - part.ranks->size()));
    }
    process.signals.listen();
    came.set_wait_limits({.warning = {}, .timeout = {}});
  } else {
    flags.start = of_first_ranks(flags.start, part.ranks->size());
    status = train_as(*part.ranks, flags, process);
  }
  meet_at_end(came, part.idle);
  return status;
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

int train(const TrainFlags& given, int* argc, char*** argv) {
  ::signal(SIGPIPE, SIG_IGN);  // Console tells of it, and the run goes on
  TrainFlags flags = given;
  if (flags.start.by != Start::By::mpirun) {  // whose ranks must all meet
    const int ranks = ranks_taking_part(given, given.start.world);
    const bool threads = flags.start.by == Start::By::threads;
    if (ranks < given.start.world && (threads || flags.start.rank == ranks)) {
      print_without_waiting(elastic_line(given.start.world, ranks));
    }
    if (flags.start.rank >= ranks) return exit_status::kOk;
    flags.start = of_first_ranks(given.start, ranks);
  }
  TrainProcess process(flags.start.rank);
  const SignalWatcher watcher(
      [&process, first = flags.start.rank == 0, by = flags.start.by](int signal) {
        using enum SignalWatcher::AfterSignal;
        // A launcher ends the others of a rank that has died; the watchdog tells why and ends them.
        if (process.faults.takes_over()) return go_on;
        const auto now = std::chrono::steady_clock::now();
        const Signals::Answer answer = process.signals.arrived(signal, now);
        const auto tell = [&process](const std::string& line) {
          const std::string waits = process.faults.waits();
          say(waits.empty() ? line : line + '\n' + waits);
        };
        if (first && !answer.line.empty()) tell(answer.line);
        if (!answer.ends_process) return go_on;
        process.faults.end_by(signal, [&] { tell(ended_by(signal, by, process.progress)); });
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
      [&](Communicator& communicator) {
        if (flags.start.by != Start::By::mpirun) return train_as(communicator, flags, process);
        return train_elastic(communicator, flags, process);
      },
      report);
}

}  // namespace zero
