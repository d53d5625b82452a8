// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
// Optimizer states and shards of parameters in a file on disks that fail or are slow, and their
// checkpoints.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <functional>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <thread>

#include "collectives/agreement.h"
#include "collectives/backends.h"
#include "tests/checkpoint/checkpoint_run.h"
#include "tests/checkpoint/hooked_disk.h"
#include "tests/checkpoint/sliced.h"
#include "tests/checkpoint/tensor_files.h"
#include "tests/engine/small_windows.h"
#include "tests/support/combinations.h"
#include "tests/support/long_tests.h"

namespace zero::testing {
namespace {

using ::testing::AllOf;
using ::testing::Each;
using ::testing::HasSubstr;

constexpr int kTierRanks = 4;
constexpr int kTierSteps = 3;

/// The run of all cases. At stage 3 ranks 0 and 2 write files, and take elements from 1 and 3.
SavedRun run_without_tiers(const std::string& folder) {
  SavedRun with = run_of(kTierRanks, 3, folder, DType::bf16);
  with.job.mesh.replicate = 2;
  with.last = kTierSteps;
  return with;
}

/// A shared pointer that owns nothing.
std::shared_ptr<files::FileSystem> lent(files::FileSystem& disk) {
  return {std::shared_ptr<void>(), &disk};
}

/// The same with states and parameters in a file, on one rank on `disk`.
SavedRun run_with_tiers(const Scratch& scratch, files::FileSystem& disk, int rank) {
  SavedRun with = run_without_tiers(scratch.path("run"));
  with.job.engine.tiers = with_shards(small_windows(scratch.path(), 2));
  with.job.states_disk = [&disk, rank](int of) { return of == rank ? lent(disk) : nullptr; };
  return with;
}

/// State hashes after each step without faults.
std::uint64_t hash_after(std::int64_t step) {
  static const std::vector<std::uint64_t> hashes = [] {
    std::vector<std::uint64_t> all;
    for (int steps = 0; steps <= kTierSteps; ++steps) {
      toy::Job job = run_without_tiers("").job;
      job.steps = steps;
      all.push_back(toy::train(job).hash);
    }
    return all;
  }();
  return hashes.at(static_cast<std::size_t>(step));
}

/// How each rank's run ended: its error, if any.
using Ends = std::vector<std::string>;

/// Trains, saves after every step, looks at what an evaluation and a hash say, to the end or the
/// first error. `at_once`: each save is waited for before the next step.
Ends run_to_the_end(const SavedRun& with, bool at_once) {
  Ends ends(kTierRanks);
  toy::with_engine(with.job, [&](Engine& engine, toy::Model& model, Communicator& communicator) {
    ends[static_cast<std::size_t>(communicator.rank())] = error_of([&] {
      Checkpointer checkpointer(engine, with.checkpoints);
      for (int i = 0; i < kTierSteps; ++i) {
        toy::step(engine, model, communicator, with.job, i);
        checkpointer.save({{"trainer", {{"step", i + 1}}}});
        if (at_once) checkpointer.wait();
      }
      checkpointer.wait();
      engine.states().check_replicas();
      EXPECT_EQ(engine.states().hash(), hash_after(kTierSteps));
    });
  });
  return ends;
}

/// What is saved in a folder is whole, and what a run without faults had at that step.
void expect_good_checkpoints(const std::string& folder) {
  SavedRun with = run_without_tiers(folder);
  with.resume = "auto";
  with.last = 0;
  const RunResult newest = run(with);
  if (newest.resumed_at >= 0) {
    EXPECT_EQ(newest.hash, hash_after(newest.resumed_at)) << "step " << newest.resumed_at;
  }
}

/// One call fails on one rank: all ranks end with the same error, and nothing wrong is saved.
void expect_told_to_all(const std::string& call, int number, int rank, bool at_once) {
  SCOPED_TRACE(fmt::format("{} {} of rank {}{}", call, number, rank, at_once ? ", at once" : ""));
  const Scratch scratch;
  Faults faults("Input/output error");
  faults.fail_at(call, number);
  HookedDisk disk(std::ref(faults));
  const Ends ends = run_to_the_end(run_with_tiers(scratch, disk, rank), at_once);
  ASSERT_TRUE(faults.happened());
  EXPECT_THAT(ends, Each(ends[0]));
  EXPECT_THAT(ends[0], AllOf(HasSubstr(fmt::format("[rank {}] {}", rank, scratch.path())),
                             HasSubstr("Input/output error"),
                             ::testing::EndsWith("; values in it are lost")));
  expect_good_checkpoints(scratch.path("run"));
}

TEST(TierFaults, ATransferThatFailsOnAnyRankEndsAllRanksAlikeAndSpoilsNoCheckpoint) {
  std::size_t cases = 0;
  for (const bool at_once : {false, true}) {
    for (const int rank : {0, 1, 2}) {
      const Scratch scratch;
      Faults counting("");
      HookedDisk disk(std::ref(counting));
      EXPECT_THAT(run_to_the_end(run_with_tiers(scratch, disk, rank), at_once), Each("no error"));
      expect_good_checkpoints(scratch.path("run"));
      for (const std::string call : {"queue read", "queue write"}) {
        const int count = counting.calls().at(call);
        EXPECT_GT(count, 20);
        for (int number = 0; number < count; number += long_tests() ? 1 : 11 + 2 * rank) {
          expect_told_to_all(call, number, rank, at_once);
          ++cases;
        }
      }
    }
  }
  EXPECT_GT(cases, 40U);
}

TEST(TierFaults, AFileThatCannotBeMadeIsToldToAllAtSeal) {
  for (const int rank : {0, 3}) {
    std::vector<std::string> errors(kTierRanks);
    local::run(kTierRanks, [&](Communicator& communicator) {
      Faults faults("No space left on device");
      faults.fail_at("create_scratch", 0);
      HookedDisk full(std::ref(faults));
      const Scratch scratch;
      const auto device = cpu::open();
      EngineOptions options;
      options.tiers = small_windows(scratch.path());
      if (communicator.rank() == rank) options.tiers.file.disk = &full;
      Engine engine(communicator, *device, options);
      engine.add_unit("unit", {{"weight", {10'000}}});
      errors[static_cast<std::size_t>(communicator.rank())] = [&] {
        try {
          engine.seal();
        } catch (const AgreedError& error) {
          return std::string(error.what());
        }
        return std::string("no error");
      }();
    });
    EXPECT_THAT(errors, Each(errors[0]));
    EXPECT_THAT(errors[0], AllOf(HasSubstr(fmt::format("[rank {}] ", rank)),
                                 HasSubstr("No space left on device")));
  }
}

/// After the failure of a write of the update, all calls that show states throw it.
TEST(TierFaults, AreFoundByEveryCallThatShowsStates) {
  using Call = std::function<void(Engine&, Checkpointer&)>;
  std::vector<float> scale(24);
  const std::map<std::string, Call> calls = {
      {"hash", [](Engine& engine, Checkpointer&) { engine.states().hash(); }},
      {"check_replicas", [](Engine& engine, Checkpointer&) { engine.states().check_replicas(); }},
      {"read",
       [&](Engine& engine, Checkpointer&) {
         std::vector<float> values(24);
         engine.states().read("scale.weight", StateKind::moment0, View::of(std::span(values)));
       }},
      {"write",
       [&](Engine& engine, Checkpointer&) {
         engine.states().write("scale.weight", StateKind::moment0, View::of(std::span(scale)));
       }},
      {"publish_parameters",
       [](Engine& engine, Checkpointer&) { engine.states().publish_parameters(); }},
      {"restore", [](Engine& engine, Checkpointer&) { engine.states().restore(3); }},
      {"initialise", [](Engine& engine, Checkpointer&) { engine.states().initialise(); }},
      {"begin_evaluation", [](Engine& engine, Checkpointer&) { engine.begin_evaluation(); }},
      {"save", [](Engine&, Checkpointer& checkpointer) { checkpointer.save({}); }}};
  for (const auto& [name, call] : calls) {
    SCOPED_TRACE(name);
    const Scratch scratch;
    std::atomic<bool> fails = false;
    HookedDisk disk([&](const std::string& of, const std::string&) {
      if (fails && of == "queue write") fail("Input/output error");
    });
    const SavedRun with = run_with_tiers(scratch, disk, 1);
    std::vector<std::string> errors(kTierRanks);
    std::vector<std::string> again(kTierRanks);
    toy::with_engine(with.job, [&](Engine& engine, toy::Model& model, Communicator& communicator) {
      const auto rank = static_cast<std::size_t>(communicator.rank());
      Checkpointer checkpointer(engine, with.checkpoints);
      toy::step(engine, model, communicator, with.job, 0);
      engine.device().transfer().synchronize();
      if (rank == 1) fails = true;
      toy::step(engine, model, communicator, with.job, 1);
      errors[rank] = error_of([&] { call(engine, checkpointer); });
      try {
        engine.states().hash();
      } catch (const ValuesLost& error) {
        again[rank] = error.what();
      }
    });
    EXPECT_THAT(errors, Each(errors[0]));
    EXPECT_THAT(errors[0], AllOf(HasSubstr("[rank 1] "), HasSubstr("Input/output error")));
    EXPECT_EQ(again, errors);
  }
}

// Its failure comes after step() has returned: calls wait for it before they ask.
TEST(TierFaults, OfTheLastWriteOfAStepAreFoundByTheNextCall) {
  const Scratch scratch;
  std::atomic<int> writes = 0;
  std::atomic<int> failing = -1;
  HookedDisk disk([&](const std::string& call, const std::string&) {
    if (call != "queue write" || ++writes != failing) return;
    std::this_thread::sleep_for(std::chrono::milliseconds(100));
    fail("Input/output error");
  });
  const SavedRun with = run_with_tiers(scratch, disk, 1);
  std::vector<std::string> errors(kTierRanks);
  toy::with_engine(with.job, [&](Engine& engine, toy::Model& model, Communicator& communicator) {
    const auto rank = static_cast<std::size_t>(communicator.rank());
    const auto writes_of_step = [&](int step) {
      engine.device().transfer().synchronize();
      if (rank == 1) writes = 0;
      toy::step(engine, model, communicator, with.job, step);
    };
    writes_of_step(0);
    engine.device().transfer().synchronize();
    if (rank == 1) failing = writes.load();
    writes_of_step(1);
    errors[rank] = error_of([&] { engine.begin_evaluation(); });
  });
  EXPECT_GT(failing, 0);
  EXPECT_EQ(writes, failing);
  EXPECT_THAT(errors, Each(errors[0]));
  EXPECT_THAT(errors[0], AllOf(HasSubstr("[rank 1] "), HasSubstr("Input/output error")));
}

// A gather has passed on what was read wrongly: no update and no loss of an evaluation comes of it.
TEST(TierFaults, OfAFetchAreToldToAllAtTheEndOfTheStepOrTheEvaluation) {
  for (const auto& [evaluates, lazy] : combinations(false, {false, true}, {false, true})) {
    SCOPED_TRACE(fmt::format("evaluates {}, lazy {}", evaluates, lazy));
    const Scratch scratch;
    std::atomic<bool> fails = false;
    HookedDisk disk([&](const std::string& call, const std::string&) {
      if (fails && call == "queue read") fail("Input/output error");
    });
    SavedRun with = run_with_tiers(scratch, disk, 1);
    with.job.engine.tiers.optimizer = Tier::device;  // other reads are of fetches only
    // Streams that have done nothing when the host asks for the step.
    if (lazy) with.job.order = StreamOrder{.policy = StreamOrder::Policy::lazy};
    std::vector<std::string> errors(kTierRanks);
    std::vector<std::string> again(kTierRanks);
    toy::with_engine(with.job, [&](Engine& engine, toy::Model& model, Communicator& communicator) {
      const auto rank = static_cast<std::size_t>(communicator.rank());
      toy::step(engine, model, communicator, with.job, 0);
      engine.device().transfer().synchronize();
      if (rank == 1) fails = true;
      errors[rank] = error_of([&] {
        if (evaluates) {
          engine.begin_evaluation();
          model.evaluate(1000, model.loss_slot());
          engine.end_evaluation();
        } else {
          toy::step(engine, model, communicator, with.job, 1);
        }
      });
      again[rank] = error_of([&] { engine.states().hash(); });
    });
    EXPECT_THAT(errors, Each(errors[0]));
    EXPECT_THAT(errors[0], AllOf(HasSubstr("[rank 1] "), HasSubstr("Input/output error"),
                                 HasSubstr("; values in it are lost")));
    EXPECT_EQ(again, errors);
  }
}

TEST(TierFaults, ADiskThatIsSlowOnOneRankChangesNothing) {
  const Scratch scratch;
  HookedDisk slow([](const std::string& call, const std::string&) {
    if (call.starts_with("queue")) std::this_thread::sleep_for(std::chrono::milliseconds(1));
  });
  EXPECT_THAT(run_to_the_end(run_with_tiers(scratch, slow, 1), false), Each("no error"));
  expect_good_checkpoints(scratch.path("run"));
}

TEST(TierCheckpoints, AreThoseOfStatesInMemoryAndLoadIntoEitherOnAnyWorld) {
  const auto at = [](const Scratch& scratch, const std::string& name, int world, int stage,
                     bool tiers) {
    SavedRun with = large_run_of(world, stage, scratch.path(name), DType::bf16);
    with.job.shape.layers = 4;
    with.checkpoints.file_bytes = 400'000;
    if (!tiers) return with;
    with.job.engine.tiers = small_windows(scratch.path());
    if (stage == 3) with.job.engine.tiers = with_shards(with.job.engine.tiers);
    with.job.engine.tiers.file.block_bytes = 8192;
    return with;
  };
  for (const int stage : {0, 2, 3}) {
    SCOPED_TRACE(stage);
    const Scratch scratch;
    SavedRun with = at(scratch, "memory", 2, stage, false);
    with.save_after = {1, 2};
    const RunResult expected = run(with);
    SavedRun filed = at(scratch, "file", 2, stage, true);
    filed.save_after = {1, 2};
    EXPECT_EQ(run(filed).hash, expected.hash);
    EXPECT_TRUE(contents(scratch.path("file")) == contents(scratch.path("memory")));
    for (const int world : {1, 4}) {
      for (const bool tiers : {false, true}) {
        SavedRun resumed = at(scratch, tiers ? "memory" : "file", world, 3 - stage, tiers);
        resumed.resume = "auto";
        const RunResult result = run(resumed);
        EXPECT_EQ(result.resumed_at, 2);
        EXPECT_EQ(result.hash, expected.hash) << "world " << world << ", tiers " << tiers;
      }
    }
  }
}

/// Columns of a matrix are many short runs, which lie side by side in the file.
TEST(TierCheckpoints, OfColumnsReadAndWriteTheFileInTiles) {
  const Scratch scratch;
  std::atomic<int> reads{0};
  std::atomic<int> writes{0};
  HookedDisk counting([&](const std::string& call, const std::string&) {
    if (call == "queue read") ++reads;
    if (call == "queue write") ++writes;
  });
  local::run(2, [&](Communicator& communicator) {
    const auto device = cpu::open();
    EngineOptions options{.compute = DType::bf16};
    options.tiers = small_windows(scratch.path());
    options.tiers.file.block_bytes = std::int64_t{1} << 16;
    if (communicator.rank() == 0) options.tiers.file.disk = &counting;
    Mesh mesh(communicator, {1, 1, 2});
    Engine engine(mesh, *device, options);
    engine.add_unit("columns", {sliced({"weight", {1500, 400}, init::normal(1)}, mesh, 1)});
    engine.seal();
    const std::uint64_t hash = engine.states().hash();
    const int blocks = 3 * 1500 * 200 * 4 / (1 << 16) + 3;  // of all states
    const bool counted = communicator.rank() == 0;
    if (counted) reads = 0;
    Checkpointer checkpointer(engine, {.folder = scratch.path("run")});
    checkpointer.save({});
    checkpointer.wait();
    EXPECT_EQ(checkpointer.report()->error, "");
    if (counted) {
      EXPECT_LE(reads, 3 * blocks) << "a save";
      writes = 0;
    }
    EXPECT_TRUE(checkpointer.load("auto"));
    if (counted) {
      EXPECT_LE(writes, 3 * blocks) << "a load, and what it publishes";
    }
    EXPECT_EQ(engine.states().hash(), hash);
  });
}

}  // namespace
}  // namespace zero::testing
