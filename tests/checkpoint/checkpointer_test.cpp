// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
// Checkpoints of training runs on any number of ranks: the same bytes, and the same bits after a
// resume.
#include "checkpoint/checkpointer.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <nlohmann/json.hpp>

#include "collectives/backends.h"
#include "tests/checkpoint/checkpoint_run.h"
#include "tests/checkpoint/tensor_files.h"

namespace zero::testing {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::SizeIs;

std::string describe(const SavedRun& with) {
  return fmt::format("world {}, stage {}, replicate {}, {}", with.job.world, with.job.engine.stage,
                     with.job.mesh.replicate, name_of(with.job.engine.compute));
}

/// What a run that is never cut and saves nothing comes to.
std::uint64_t uncut(SavedRun with) {
  with.save_after.clear();
  with.resume = "never";
  return run(with).hash;
}

TEST(Checkpointer, AllFilesAreEqualAtEveryWorldStageAndMesh) {
  for (const DType compute : {DType::fp32, DType::bf16}) {
    std::map<std::string, std::string> reference;
    std::uint64_t hash = 0;
    const auto expect_equal = [&](SavedRun with) {
      Scratch scratch;
      with.checkpoints.folder = scratch.path("run");
      with.checkpoints.weight_files = {{"config.json", "{}"}};
      with.save_after = {1, 3};
      const RunResult result = run(with);
      ASSERT_THAT(result.reports, SizeIs(2)) << describe(with);
      for (const SaveReport& report : result.reports) EXPECT_EQ(report.error, "") << describe(with);
      const auto files = contents(scratch.path("run"));
      if (reference.empty()) {
        reference = files;
        hash = uncut(with);
      }
      EXPECT_TRUE(files == reference) << describe(with);
      EXPECT_EQ(result.hash, hash) << describe(with);
    };
    for (const int world : {1, 2, 4, 8}) {
      for (const int stage : {0, 1, 2, 3}) expect_equal(run_of(world, stage, "", compute));
    }
    for (const int stage : {0, 3}) {
      SavedRun with = run_of(8, stage, "", compute);
      with.job.mesh = {.replicate = 2, .shard = 4};
      expect_equal(with);
      with.job.mesh = {.replicate = 8, .shard = 1};
      expect_equal(with);
    }
    EXPECT_EQ(reference.size(), 2U * 6);
  }
}

TEST(Checkpointer, ManyBlocksOfSeveralRanksAreEqualAtEveryWorldToo) {
  std::map<std::string, std::string> reference;
  for (const SavedRun& each : {large_run_of(1, 0, ""), large_run_of(2, 3, ""),
                               large_run_of(4, 2, ""), large_run_of(8, 3, "")}) {
    for (const int replicate : {1, 2}) {
      if (each.job.world < replicate) continue;
      Scratch scratch;
      SavedRun with = each;
      with.job.mesh.replicate = replicate;
      with.checkpoints.folder = scratch.path("run");
      with.checkpoints.file_bytes = 3'000'000;
      with.save_after = {1, 2};
      with.last = 2;
      run(with);
      const auto files = contents(scratch.path("run"));
      if (reference.empty()) reference = files;
      EXPECT_TRUE(files == reference) << describe(with);
      with.resume = "auto";
      with.save_after.clear();
      with.last = 0;
      EXPECT_EQ(run(with).resumed_at, 2);
    }
  }
  EXPECT_EQ(reference.size(), 2U * (3 * 3 + 1 + 2));
}

struct Link {
  int world;
  int stage;
  int replicate = 1;
};

TEST(Checkpointer, AChainOfResumesOnOtherWorldsAndStagesHasTheBitsOfOneRun) {
  const std::vector<Link> chain = {{8, 3}, {4, 1}, {1, 0}, {8, 2, 2}, {2, 3}, {4, 0, 4}};
  using Kind = OptimizerConfig::Kind;
  for (const Kind kind : {Kind::adamw, Kind::adam, Kind::sgd}) {
    for (const DType compute : {DType::fp32, DType::bf16}) {
      Scratch scratch;
      const auto link = [&](const Link& of) {
        SavedRun with = run_of(of.world, of.stage, scratch.path("run"), compute);
        with.job.mesh.replicate = of.replicate;
        with.job.engine.optimizer.kind = kind;
        if (kind == Kind::sgd) with.job.engine.optimizer.momentum = 0.9;
        return with;
      };
      RunResult result;
      for (std::size_t i = 0; i < chain.size(); ++i) {
        SavedRun with = link(chain[i]);
        with.resume = "auto";
        with.last = 2 * static_cast<int>(i) + 2;
        with.save_after = {with.last - 1, with.last};
        result = run(with);
        EXPECT_EQ(result.resumed_at, i == 0 ? -1 : 2 * static_cast<int>(i)) << describe(with);
      }
      SavedRun whole = link({1, 3});
      whole.last = 2 * static_cast<int>(chain.size());
      EXPECT_EQ(result.hash, uncut(whole)) << name_of(kind) << " " << name_of(compute);
    }
  }
}

TEST(Checkpointer, AStateLoadedAndSavedAgainHasTheSameFilesAtAnyWorld) {
  Scratch scratch;
  SavedRun first = run_of(4, 2, scratch.path("first"), DType::bf16);
  first.save_after = {3};
  run(first);
  const auto reference = contents(scratch.path("first"));
  for (const int world : {1, 2, 3, 8}) {
    for (const int stage : {0, 1, 3}) {
      SavedRun again = run_of(world, stage, scratch.path("again"), DType::bf16);
      toy::with_engine(again.job, [&](Engine& engine, toy::Model&, Communicator&) {
        Checkpointer checkpointer(engine, again.checkpoints);
        const auto resumed = checkpointer.load(scratch.path("first"));
        ASSERT_TRUE(resumed);
        EXPECT_EQ(resumed->folder, scratch.path("first/step_00000003"));
        nlohmann::ordered_json extra;
        extra["trainer"]["step"] = 3;
        checkpointer.save(extra);
        checkpointer.wait();
        EXPECT_EQ(checkpointer.report()->error, "");
      });
      EXPECT_TRUE(contents(scratch.path("again")) == reference) << describe(again);
      std::filesystem::remove_all(scratch.path("again"));
    }
  }
}

TEST(Checkpointer, SavesAtEveryStepWaitForTheOneBefore) {
  Scratch scratch;
  SavedRun with = run_of(4, 3, scratch.path("run"));
  with.save_after = {1, 2, 3, 4};
  with.last = 4;
  const RunResult result = run(with);
  EXPECT_EQ(result.hash, uncut(with));
  ASSERT_THAT(result.reports, SizeIs(4));
  for (std::size_t i = 0; i < 4; ++i) {
    EXPECT_EQ(result.reports[i].step, static_cast<std::int64_t>(i) + 1);
    EXPECT_EQ(result.reports[i].error, "");
    EXPECT_GE(result.reports[i].seconds, result.reports[i].exposed_seconds);
  }
}

TEST(Checkpointer, OldCheckpointsAreRemovedAndSomeKeptForGood) {
  Scratch scratch;
  SavedRun with = run_of(2, 2, scratch.path("run"));
  with.checkpoints.keep_last = 2;
  with.checkpoints.keep_every = 3;
  with.save_after = {1, 2, 3, 4, 5, 6, 7};
  with.last = 7;
  run(with);
  std::vector<std::string> names;
  for (const auto& entry : std::filesystem::directory_iterator(scratch.path("run")))
    names.push_back(entry.path().filename().string());
  std::ranges::sort(names);
  EXPECT_THAT(names, ElementsAre("step_00000003", "step_00000006", "step_00000007"));
}

TEST(Checkpointer, AFailureOfWhatAsksWhetherToRemoveIsANoteOfASaveThatIsWhole) {
  Scratch scratch;
  SavedRun with = run_of(2, 2, scratch.path("run"));
  with.checkpoints.keep_last = 1;
  // Throws what is no zero::Error.
  const SaveRules rules{.removes = [](auto, const auto& extra) { return extra.at("run") == "a"; }};
  with.checkpoints.rules = &rules;
  toy::with_engine(with.job, [&](Engine& engine, toy::Model& model, Communicator& communicator) {
    Checkpointer checkpointer(engine, with.checkpoints);
    for (int step = 0; step < 2; ++step) {
      toy::step(engine, model, communicator, with.job, step);
      checkpointer.save({});
    }
    checkpointer.wait();
    for (int i = 0; i < 2; ++i) {
      const SaveReport report = checkpointer.report().value();
      EXPECT_EQ(report.error, "");
      EXPECT_THAT(report.notes, HasSubstr("run"));
    }
  });
  EXPECT_TRUE(std::filesystem::exists(scratch.path("run/step_00000001/COMMIT")));
  EXPECT_TRUE(std::filesystem::exists(scratch.path("run/step_00000002/COMMIT")));
}

TEST(Checkpointer, EvaluationsBetweenStepsDoNotDisturbASave) {
  Scratch scratch;
  SavedRun with = run_of(2, 3, scratch.path("run"));
  std::uint64_t hash = 0;
  toy::with_engine(with.job, [&](Engine& engine, toy::Model& model, Communicator& communicator) {
    Checkpointer checkpointer(engine, with.checkpoints);
    const auto evaluate = [&] {
      engine.begin_evaluation();
      model.evaluate(5, model.loss_slot());
      engine.end_evaluation();
    };
    for (int step = 0; step < 3; ++step) {
      toy::step(engine, model, communicator, with.job, step);
      checkpointer.save({});
      evaluate();
    }
    checkpointer.wait();
    for (int i = 0; i < 3; ++i) EXPECT_EQ(checkpointer.report()->error, "");
    const std::uint64_t mine = engine.states().hash();
    if (communicator.rank() == 0) hash = mine;
  });
  EXPECT_EQ(hash, uncut(with));
  SavedRun other = run_of(1, 0, scratch.path("other"));
  other.save_after = {2};
  run(other);
  EXPECT_TRUE(contents(scratch.path("run/step_00000002/weights")) ==
              contents(scratch.path("other/step_00000002/weights")));
}

TEST(Checkpointer, DestructionWaitsForTheSaveInFlight) {
  Scratch scratch;
  const SavedRun with = run_of(2, 3, scratch.path("run"));
  toy::with_engine(with.job, [&](Engine& engine, toy::Model& model, Communicator& communicator) {
    {
      Checkpointer checkpointer(engine, with.checkpoints);
      toy::step(engine, model, communicator, with.job, 0);
      checkpointer.save({});
    }
    toy::step(engine, model, communicator, with.job, 1);  // the engine reads for nobody any more
    Checkpointer checkpointer(engine, with.checkpoints);
    EXPECT_EQ(checkpointer.load("auto")->step, 1);
    EXPECT_EQ(engine.states().steps_done(), 1);
  });
}

TEST(Checkpointer, SkippedStepsAreRestoredToo) {
  Scratch scratch;
  const SavedRun with = run_of(2, 1, scratch.path("run"));
  toy::with_engine(with.job, [&](Engine& engine, toy::Model&, Communicator&) {
    Checkpointer checkpointer(engine, with.checkpoints);
    engine.states().restore(7, 3);
    checkpointer.save({{"tokens", 12}});
    checkpointer.wait();
    EXPECT_EQ(checkpointer.report()->step, 10);
    engine.states().initialise();
    nlohmann::ordered_json accepted;
    const auto resumed = checkpointer.load("auto", [&](const nlohmann::ordered_json& extra) {
      EXPECT_EQ(extra.dump(), R"({"tokens":12})");
      accepted = extra;
    });
    EXPECT_EQ(resumed->step, 10);
    checkpointer.save(accepted);  // what a trainer was given can be saved again
    checkpointer.wait();
    EXPECT_EQ(checkpointer.report()->error, "");
    EXPECT_EQ(engine.states().steps_done(), 7);
    EXPECT_EQ(engine.states().steps_skipped(), 3);
  });
}

TEST(Checkpointer, LoadTakesTheNewestGoodOneAndTellsWhyOthersAreNot) {
  Scratch scratch;
  SavedRun with = run_of(4, 3, scratch.path("run"));
  with.save_after = {1, 2, 3, 4};
  with.last = 4;
  run(with);
  const auto change = [&](const std::string& name, std::int64_t at) {
    std::string bytes = file_bytes(scratch.path("run/" + name));
    bytes[static_cast<std::size_t>(at < 0 ? std::ssize(bytes) + at : at)] ^= 1;
    write_bytes(scratch.path("run/" + name), bytes);
  };
  change("step_00000004/moments/moment1.safetensors", -1);
  change("step_00000003/index.json", 100);
  std::filesystem::create_directory(scratch.path("run/step_00000009.partial"));
  SavedRun resumed = run_of(2, 1, scratch.path("run"));
  resumed.resume = "auto";
  resumed.last = 4;
  const RunResult result = run(resumed);
  EXPECT_EQ(result.resumed_at, 2);
  EXPECT_EQ(result.hash, uncut(resumed));
  EXPECT_THAT(
      result.passed_over,
      ElementsAre(HasSubstr("step_00000009.partial: is being written, or was cut off"),
                  AllOf(HasSubstr("[rank "), HasSubstr("step_00000004/moments/moment1.safet"),
                        HasSubstr("offset 0"), HasSubstr("tensor \"embedding.positions\"")),
                  HasSubstr("step_00000003/")));

  const auto error_of_loading = [&](const std::string& which) {
    std::string error;
    toy::with_engine(with.job, [&](Engine& engine, toy::Model&, Communicator& communicator) {
      Checkpointer checkpointer(engine, with.checkpoints);
      const std::uint64_t initial = engine.states().hash();
      const std::string mine = error_of([&] { checkpointer.load(which); });
      EXPECT_EQ(engine.states().hash(), initial);
      EXPECT_EQ(engine.states().steps_done(), 0);
      EXPECT_EQ(checkpointer.load("never"), std::nullopt);
      if (communicator.rank() == 3) error = mine;
    });
    return error;
  };
  EXPECT_THAT(error_of_loading(scratch.path("run/step_00000004")),
              AllOf(HasSubstr("[rank "), HasSubstr("moment1.safetensors")));
  EXPECT_THAT(error_of_loading(scratch.path("run")), HasSubstr("moment1.safetensors"));
  EXPECT_THAT(error_of_loading(scratch.path("run/step_00000003")), HasSubstr("step_00000003/"));
  EXPECT_THAT(error_of_loading(scratch.path("nothing")), HasSubstr("nothing: found no checkpoint"));
}

TEST(Checkpointer, AnEmptyFolderIsAFreshStart) {
  Scratch scratch;
  SavedRun with = run_of(2, 3, scratch.path("run"));
  with.resume = "auto";
  EXPECT_EQ(run(with).resumed_at, -1);
  EXPECT_THAT(scratch.names(), IsEmpty());
}

TEST(Checkpointer, DamagedCheckpointsAloneAreNoFreshStart) {
  Scratch scratch;
  SavedRun with = run_of(2, 3, scratch.path("run"));
  with.save_after = {1, 2};
  run(with);
  std::filesystem::remove(scratch.path("run/step_00000001/COMMIT"));
  write_bytes(scratch.path("run/step_00000002/index.json"), "{}");
  std::filesystem::create_directory(scratch.path("run/step_00000003.partial"));
  with.save_after.clear();
  with.resume = "auto";
  EXPECT_THAT(error_of([&] { run(with); }),
              AllOf(HasSubstr(scratch.path("run") + ": none of its checkpoints can be loaded"),
                    HasSubstr("set \"run.resume\" to \"never\" or give another"),
                    HasSubstr("step_00000003.partial: is being written"),
                    HasSubstr("step_00000002/COMMIT: found "),
                    HasSubstr("step_00000001/COMMIT: is missing")));
  std::filesystem::remove_all(scratch.path("run/step_00000001"));
  std::filesystem::remove_all(scratch.path("run/step_00000002"));
  const RunResult result = run(with);
  EXPECT_EQ(result.resumed_at, -1);
  EXPECT_THAT(result.passed_over, SizeIs(1));
}

TEST(Checkpointer, WhatTheTrainerRefusesIsAnErrorAndChangesNothing) {
  Scratch scratch;
  SavedRun with = run_of(2, 3, scratch.path("run"));
  with.save_after = {3};
  run(with);
  toy::with_engine(with.job, [&](Engine& engine, toy::Model&, Communicator& communicator) {
    Checkpointer checkpointer(engine, with.checkpoints);
    const std::uint64_t initial = engine.states().hash();
    EXPECT_THAT(error_of([&] {
                  checkpointer.load("auto", [&](const nlohmann::ordered_json&) {
                    if (communicator.rank() == 1) fail("data.train is another file");
                  });
                }),
                HasSubstr("step_00000003/index.json: data.train is another file"));
    EXPECT_EQ(engine.states().hash(), initial);
  });
  with.job.shape.width = 32;
  EXPECT_THAT(error_of([&] {
                with.resume = "auto";
                run(with);
              }),
              AllOf(HasSubstr("step_00000003"), HasSubstr("[3, 24]"), HasSubstr("[3, 32]")));
}

TEST(Checkpointer, WrongOptionsAndValuesAreRefused) {
  Scratch scratch;
  const SavedRun with = run_of(2, 3, scratch.path("run"));
  toy::with_engine(with.job, [&](Engine& engine, toy::Model&, Communicator&) {
    EXPECT_THAT(error_of([&] { Checkpointer(engine, {}); }), HasSubstr("has no name"));
    EXPECT_THAT(error_of([&] { Checkpointer(engine, {.folder = "a", .keep_last = -1}); }),
                HasSubstr("a: keep_last is -1 and keep_every 0"));
    Checkpointer checkpointer(engine, with.checkpoints);
    EXPECT_THAT(error_of([&] {
                  checkpointer.save({1, 2});
                }),
                HasSubstr("the extra values are array, expected a JSON object"));
  });
}

}  // namespace
}  // namespace zero::testing
