// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#include "launch/train_program.h"

#include <fmt/format.h>
#include <unistd.h>

#include <memory>
#include <optional>

#include "collectives/backends.h"
#include "launch/agree.h"
#include "launch/batches.h"
#include "launch/console.h"
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

void check_files(const TrainConfig& config) {
  check_writable(config.run.log, "run.log");
  if (!config.run.save_weights.empty()) check_writable(config.run.save_weights, "run.save_weights");
  ZERO_CHECK(config.run.init.empty() || ::access(config.run.init.c_str(), R_OK) == 0,
             "run.init: cannot read {}; give an existing safetensors file", config.run.init);
}

Prepared prepare_run(const TrainFlags& flags, Communicator& communicator) {
  Prepared prepared;
  const auto device = cpu::open();
  agree(communicator, *device, "configuration",
        [&] { prepared.config.emplace(configured(flags, communicator.size())); });
  const TrainConfig& config = *prepared.config;
  require_same(communicator, *device, config.values.effective());
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

void run(const TrainFlags& flags, Communicator& communicator, Console& console) {
  Prepared prepared = prepare_run(flags, communicator);
  const TrainConfig& config = *prepared.config;
  if (const std::string note = config.values.note(); !note.empty()) console.line(note);
  if (const std::string warning = binding_warning(communicator.rank(), config.run.threads);
      !warning.empty()) {
    console.line("warning: " + warning);
  }
  const auto device = cpu::open({.threads = config.run.threads});
  Trainer trainer({.config = config,
                   .batches = *prepared.batches,
                   .communicator = communicator,
                   .device = *device,
                   .console = console,
                   .log = prepared.log.get()});
  trainer.run();
}

}  // namespace

std::string printed_config(const TrainFlags& flags, int world) {
  return configured(flags, world).values.dump();
}

std::string printed_plan(const TrainFlags& flags, int world) {
  const Plan plan = make_plan(configured(flags, world), mpi::available() ? "mpi" : "local");
  return flags.json ? plan.json().dump(2) + "\n" : plan.text();
}

int train(const TrainFlags& flags, int* argc, char*** argv) {
  const auto communicator = mpi::world(argc, argv);
  const bool first = communicator->rank() == 0;
  const Console::Mode mode = on_terminal() ? Console::Mode::terminal : Console::Mode::lines;
  Console console(stdout, first ? mode : Console::Mode::silent);
  try {
    run(flags, *communicator, console);
    return 0;
  } catch (const AgreedError& error) {
    console.end_progress();
    if (first) fmt::print(stderr, "zero_train: {}\n", error.what());
  }
  return 1;
}

}  // namespace zero
