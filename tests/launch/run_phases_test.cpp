// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#include "launch/flight/run_phases.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "collectives/backends.h"
#include "collectives/mesh.h"
#include "launch/data/batches.h"
#include "launch/telemetry/output.h"
#include "launch/train/trainer.h"
#include "tests/launch/tiny_run.h"

namespace zero::testing {
namespace {

using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::ElementsAreArray;

/// Keeps what it is told.
class Told final : public PhaseListener, public UnitListener {
 public:
  void phase(std::int64_t step, std::string_view name) override {
    phases.push_back(fmt::format("{} {}", step, name));
  }
  void unit(std::string_view name, Phase phase) override {
    units.push_back(fmt::format("{} {}", name_of(phase), name));
  }
  bool hears_operations() const override { return false; }
  void begin(const OpCost& /*cost*/) override { ADD_FAILURE() << "it hears no operations"; }
  void end() noexcept override {}

  std::vector<std::string> phases{};
  std::vector<std::string> units{};
};

TEST(RunPhases, TellsForwardFromBackwardByTheUnits) {
  Told told;
  RunPhases phases({&told});
  phases.unit("wte", Phase::forward);  // of no step
  phases.at(3, "forward");
  phases.unit("wte", Phase::forward);
  phases.unit("head", Phase::both);
  phases.unit("h.0", Phase::recompute);
  phases.unit("h.0", Phase::backward);
  phases.at(3, "forward");  // another micro-batch
  phases.at(3, "validation");
  phases.unit("wte", Phase::forward);
  EXPECT_THAT(told.phases, ElementsAre("3 forward", "3 backward", "3 forward", "3 validation"));
}

/// The first of two ranks' phases and units.
Told told_of(const TinyRun& run, const std::vector<std::string>& overrides) {
  Told first;
  local::run(2, [&](Communicator& ranks) {
    const TrainConfig config = make_train_config(Configuration::read(run.config(), overrides), 2);
    const auto device = cpu::open();
    const Batches batches(config, ranks.rank());
    Console console(stdout, Console::Mode::silent);
    const auto log = ranks.rank() == 0 ? std::make_unique<RunLog>(config.run.log) : nullptr;
    Mesh mesh(ranks, config.mesh);
    Told told;
    Trainer({.config = config,
             .batches = batches,
             .mesh = mesh,
             .device = *device,
             .console = console,
             .log = log.get(),
             .unit_listeners = {&told},
             .phase_listeners = {&told}})
        .run();
    if (ranks.rank() == 0) first = told;
  });
  return first;
}

TEST(RunPhases, OfARunBehindItsStartToItsEnd) {
  const TinyRun run;
  const Told told = told_of(run, {"run.steps=2", "run.validation_every=2", "train_batch_size=8",
                                  "run.save_weights=" + run.folder().path("weights.safetensors")});
  std::vector<std::string> expected{"-1 load", "-1 between steps"};
  for (const char* const step : {"1", "2"}) {
    for (const char* const phase : {"forward", "backward", "forward", "backward", "update"}) {
      expected.push_back(fmt::format("{} {}", step, phase));
    }
    if (step[0] == '2') expected.emplace_back("2 validation");
    expected.push_back(fmt::format("{} between steps", step));
  }
  // The last validation is known; weights are saved at the end.
  for (const char* const phase : {"end", "end", "save", "end"}) {
    expected.push_back(fmt::format("2 {}", phase));
  }
  EXPECT_THAT(told.phases, ElementsAreArray(expected));
  EXPECT_THAT(told.units, Contains("forward h.0"));
  EXPECT_THAT(told.units, Contains("backward h.1"));
}

TEST(RunPhases, NamesTheSaves) {
  const TinyRun run;
  std::filesystem::create_directory(run.folder().path("c"));
  const Told told = told_of(run, {"run.steps=2", "run.checkpoint.folder=" + run.folder().path("c"),
                                  "run.checkpoint.every_steps=1"});
  EXPECT_THAT(told.phases, Contains("1 save"));
  EXPECT_THAT(told.phases, Contains("2 save"));
}

}  // namespace
}  // namespace zero::testing
