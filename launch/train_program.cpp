// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#include "launch/train_program.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <memory>
#include <optional>
#include <thread>

#include "base/error.h"
#include "checkpoint/file.h"
#include "checkpoint/hf_folder.h"
#include "collectives/backends.h"
#include "launch/agree.h"
#include "launch/batches.h"
#include "launch/console.h"
#include "launch/cores.h"
#include "launch/plan.h"
#include "launch/process.h"
#include "launch/trainer.h"

namespace zero {
namespace {

TrainConfig configured(const TrainFlags& flags, int world) {
  return make_train_config(Configuration::read(flags.config, flags.overrides), world);
}

/// Everything that can be known to be wrong before memory is taken.
struct Prepared {
  std::optional<TrainConfig> config{};
  std::optional<Batches> batches{};
  std::unique_ptr<RunLog> log{};
};

/// The weights are written beside their name first, then renamed.
void check_weights_target(const std::string& path) {
  try {
    if (names_folder(path)) return check_folder_target(path);
    check_target(path);
    check_target(path + ".partial");
  } catch (const Error& error) {
    fail("run.save_weights: {}; give the path of a file or a folder/ that may be written",
         error.what());
  }
}

std::vector<std::string> initial_files(const std::string& init) {
  try {
    return weight_files(init);
  } catch (const Error& error) {
    fail("run.init: {}", error.what());
  }
}

void check_files(const TrainConfig& config) {
  check_writable(config.run.log, "run.log");
  if (!config.run.save_weights.empty()) check_weights_target(config.run.save_weights);
  if (config.run.init.empty()) return;
  for (const std::string& path : initial_files(config.run.init)) {
    ZERO_CHECK(::access(path.c_str(), R_OK) == 0,
               "run.init: cannot read {}; give an existing safetensors file or Hugging Face folder",
               path);
  }
}

Prepared prepare_run(const TrainFlags& flags, Communicator& communicator) {
  Prepared prepared;
  const auto device = cpu::open();
  agree(communicator, *device, "configuration", [&] {
    ZERO_CHECK(flags.error.empty(), "{}; see zero_train --help", flags.error);
    prepared.config.emplace(configured(flags, communicator.size()));
  });
  const TrainConfig& config = *prepared.config;
  std::map<std::string, std::string> same = config.values.effective();
  same["version"] = version_text();
  std::replace(same["version"].begin(), same["version"].end(), '\n', ';');
  require_same(communicator, *device, same);
  agree(communicator, *device, "data", [&] {
    check_files(config);
    prepared.batches.emplace(config, communicator.rank());
  });
  require_same(communicator, *device, prepared.batches->fingerprint());
  agree(communicator, *device, "run.log", [&] {
    if (communicator.rank() == 0) prepared.log = std::make_unique<RunLog>(config.run.log);
  });
  return prepared;
}

/// Where run.threads was left at its default and cores stay idle: how to use them.
std::string idle_cores_hint(const TrainConfig& config) {
  if (config.values.given("run.threads")) return "";
  const ThreadChoice choice = choose_threads(core_facts(local_ranks(config.world)));
  if (choice.threads <= config.run.threads) return "";
  return fmt::format(
      "run.threads is {}; \"auto\" would use {} ({}). It stays as it is unless asked for: bf16 "
      "results on AMX depend on it",
      config.run.threads, choice.threads, choice.why);
}

/// One run with all it owns. Lives until the process ends where only this rank knows of a failure:
/// its threads may wait for ranks that will not come.
class Run {
 public:
  Run(Communicator& communicator, Console& console)
      : communicator_(communicator), console_(console) {}

  void operator()(const TrainFlags& flags) {
    prepared_ = prepare_run(flags, communicator_);
    const TrainConfig& config = *prepared_.config;
    if (const std::string note = config.values.note(); !note.empty()) console_.line(note);
    device_ = cpu::open({.threads = config.run.threads});
    const PlacementReport placement =
        judge_placements(gather_placements(communicator_, *device_, config.run.threads));
    for (const std::string& warning : placement.warnings) console_.line("warning: " + warning);
    if (placement.warnings.empty() && !placement.shared.empty()) console_.line(placement.shared);
    if (const std::string hint = idle_cores_hint(config); !hint.empty()) console_.line(hint);
    trainer_ =
        std::make_unique<Trainer>(TrainerParts{.config = config,
                                               .batches = *prepared_.batches,
                                               .communicator = communicator_,
                                               .device = *device_,
                                               .console = console_,
                                               .log = prepared_.log.get(),
                                               .cores_are_shared = !placement.shared.empty()});
    trainer_->run();
  }

 private:
  Communicator& communicator_;
  Console& console_;
  Prepared prepared_;
  std::unique_ptr<Device> device_;
  std::unique_ptr<Trainer> trainer_;
};

int train_as(Communicator& communicator, const TrainFlags& flags, std::atomic<bool>& reported) {
  const bool first = communicator.rank() == 0;
  const Console::Mode mode = on_terminal() ? Console::Mode::terminal : Console::Mode::lines;
  Console console(stdout, first ? mode : Console::Mode::silent);
  Run run(communicator, console);
  try {
    run(flags);
    return 0;
  } catch (const AgreedError& error) {
    reported = true;
    console.end_progress();
    if (first) fmt::print(stderr, "zero_train: {}\n", error.what());
  } catch (const std::exception& error) {
    reported = true;
    console.end_progress();
    end_job(error.what(), communicator.rank(), communicator.size());
  }
  return 1;
}

}  // namespace

std::string printed_config(const TrainFlags& flags, int world) {
  return configured(flags, world).values.dump();
}

std::string printed_plan(const TrainFlags& flags, int world) {
  const Plan plan = make_plan(configured(flags, world), mpi::available() ? "mpi" : "local");
  return flags.json ? plan.json().dump(2) + "\n" : plan.text();
}

void end_job(const std::string& message, int rank, int world) {
  std::this_thread::sleep_for(std::chrono::milliseconds(200 * std::min(rank, 8)));
  const std::string who =
      world == 1 || message.starts_with("[rank ") ? "" : fmt::format("[rank {}] ", rank);
  fmt::print(stderr, "zero_train: {}{}\n", who, message);
  std::fflush(stderr);
  mpi::abort(1);
}

int train(const TrainFlags& flags, int* argc, char*** argv) {
  std::atomic<bool> reported{false};
  const int launched = launched_rank().rank;
  const SignalWatcher watcher([&reported, launched](int signal) {
    // mpirun drops what is still unread when the last rank ends: the others leave it time.
    if (launched != 0) std::this_thread::sleep_for(std::chrono::milliseconds(300));
    if (launched != 0 || reported) return;
    fmt::print("\nended by {}; the log holds every step done\n",
               signal == SIGINT ? "SIGINT" : "SIGTERM");
    std::fflush(stdout);
  });
  if (mpi::available()) return train_as(*mpi::world(argc, argv), flags, reported);
  int status = 1;
  local::run(1, [&](Communicator& alone) { status = train_as(alone, flags, reported); });
  return status;
}

}  // namespace zero
