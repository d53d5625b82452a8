// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
// Checkpointers in company: of each other, of ranks that give other values, of an engine that ends.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
#include <nlohmann/json.hpp>

#include "checkpoint/checkpointer.h"
#include "checkpoint/weights.h"
#include "collectives/backends.h"
#include "tests/checkpoint/checkpoint_run.h"
#include "tests/checkpoint/tensor_files.h"

namespace zero::testing {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

TEST(Checkpointer, TwoOnOneEngineBothSave) {
  Scratch scratch;
  const SavedRun with = run_of(2, 3, scratch.path("a"));
  toy::with_engine(with.job, [&](Engine& engine, toy::Model& model, Communicator& communicator) {
    Checkpointer a(engine, {.folder = scratch.path("a")});
    Checkpointer b(engine, {.folder = scratch.path("b")});
    toy::step(engine, model, communicator, with.job, 0);
    a.save({});
    b.save({});  // ends the other's first
    EXPECT_EQ(a.report()->error, "");
    toy::step(engine, model, communicator, with.job, 1);
    a.save({});
    b.wait();
    EXPECT_EQ(b.report()->error, "");
    EXPECT_EQ(b.load("auto")->step, 1);  // while the other saves step 2
    a.wait();
    EXPECT_EQ(a.report()->error, "");
    EXPECT_EQ(a.load("auto")->step, 2);
    b.save({});
    engine.states().attach(nullptr);  // waits too
    EXPECT_EQ(b.report()->error, "");
  });
  EXPECT_TRUE(contents(scratch.path("a/step_00000001")) ==
              contents(scratch.path("b/step_00000001")));
}

std::unique_ptr<Engine> sealed(Communicator& communicator, Device& device) {
  auto engine = std::make_unique<Engine>(communicator, device, EngineOptions{});
  engine->add_unit("layer", {{"weight", {4}}});
  engine->seal();
  return engine;
}

TEST(Checkpointer, OfADestroyedEngineSaysSo) {
  Scratch scratch;
  local::run(1, [&](Communicator& communicator) {
    const auto device = cpu::open();
    auto engine = sealed(communicator, *device);
    Checkpointer checkpointer(*engine, {.folder = scratch.path("run")});
    checkpointer.save({});
    engine.reset();
    EXPECT_THAT(error_of([&] { checkpointer.wait(); }),
                HasSubstr("/run: the engine of these checkpoints was destroyed; it must outlive"));
  });  // and its own end does nothing
}

TEST(Checkpointer, OfADestroyedEngineSaysSoWithNothingInFlight) {
  Scratch scratch;
  local::run(1, [&](Communicator& communicator) {
    const auto device = cpu::open();
    auto engine = sealed(communicator, *device);
    Checkpointer saved(*engine, {.folder = scratch.path("run")});
    saved.save({});
    saved.wait();
    Checkpointer unused(*engine, {.folder = scratch.path("run")});
    engine.reset();
    for (Checkpointer* each : {&saved, &unused}) {
      const std::vector<std::function<void()>> calls = {
          [&] { each->save({}); }, [&] { each->wait(); }, [&] { each->give_up("tired"); },
          [&] { static_cast<void>(each->load("auto")); }};
      for (const auto& call : calls)
        EXPECT_THAT(error_of(call), HasSubstr("the engine of these checkpoints was destroyed"));
    }
    EXPECT_EQ(saved.report()->error, "");  // what it knows, it still tells
  });
}

TEST(Checkpointer, OfAPlanSavesNothing) {
  Scratch scratch;
  const auto device = planning::open();
  const auto ranks = planning::communicator(0, 2, BackendKind::local);
  Engine engine(*ranks, *device, EngineOptions{});
  engine.add_unit("layer", {{"weight", {4}}});
  engine.seal();
  Checkpointer checkpointer(engine, {.folder = scratch.path("run")});
  EXPECT_EQ(checkpointer.load("auto"), std::nullopt);  // plans its memory
  EXPECT_THAT(error_of([&] { checkpointer.save({}); }),
              AllOf(HasSubstr("/run: save: the device \"planning\" has no memory"),
                    HasSubstr("save those of an engine on the device of a run")));
  const std::string file = scratch.path("weights.safetensors");
  EXPECT_THAT(
      error_of([&] { save_weights(engine, file, names::plain()); }),
      HasSubstr("[rank 0] save_weights(" + file + "): the device \"planning\" has no memory"));
  EXPECT_THAT(
      error_of([&] { load_weights(engine, file, names::plain()); }),
      HasSubstr("[rank 0] load_weights(" + file + "): the device \"planning\" has no memory"));
}

TEST(Checkpointer, ExtraValuesThatDifferAreNamedAndNothingIsSaved) {
  Scratch scratch;
  const SavedRun with = run_of(2, 3, scratch.path("run"));
  toy::with_engine(with.job, [&](Engine& engine, toy::Model&, Communicator& communicator) {
    Checkpointer checkpointer(engine, with.checkpoints);
    checkpointer.save({{"epoch", 1}, {"rows", 8 + communicator.rank()}});
    checkpointer.wait();
    EXPECT_THAT(checkpointer.report()->error,
                AllOf(HasSubstr("step_00000000: was not saved"),
                      HasSubstr("rank 1 has \"\"rows\": 9\", rank 0 has \"\"rows\": 8\"")));
    EXPECT_EQ(checkpointer.load("auto"), std::nullopt);
    checkpointer.save({{"epoch", 1}, {"rows", 8}});
    checkpointer.wait();
    EXPECT_EQ(checkpointer.report()->error, "");
  });
}

TEST(Checkpointer, StagingIsForTheBlocksThatThereAre) {
  Scratch scratch;
  const SavedRun with = run_of(2, 3, scratch.path("run"));
  toy::with_engine(with.job, [&](Engine& engine, toy::Model&, Communicator&) {
    MemoryLedger& ledger = engine.device().ledger();
    const auto held = [&] {
      const MemorySnapshot now = ledger.snapshot();
      return now.current_of(MemoryClass::staging) + now.current_of(MemoryClass::communication);
    };
    const std::int64_t before = held();
    const Checkpointer checkpointer(engine, with.checkpoints);
    EXPECT_LT(held() - before, std::int64_t{1} << 20);
  });
}

}  // namespace
}  // namespace zero::testing
