// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#include "launch/train/trainer.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <functional>
#include <set>

#include "collectives/backends.h"
#include "launch/process/open_files.h"
#include "launch/telemetry/run_report.h"
#include "launch/train/plan.h"
#include "tests/errors.h"
#include "tests/launch/flipping.h"
#include "tests/launch/tiny_run.h"
#include "tests/launch/train_rank.h"
#include "tests/support/test_device.h"

namespace zero::testing {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;
using Json = nlohmann::json;
using OpenDevice = std::function<std::unique_ptr<Device>()>;
using WrapWorld = std::function<std::shared_ptr<CollectiveBackend>(const Communicator&)>;

/// Trains with ranks as threads; gives the lines of the log.
std::vector<Json> train(
    const TinyRun& run, int world, const std::vector<std::string>& overrides,
    const OpenDevice& open = [] { return cpu::open(); },
    const WrapWorld& wrap = [](const Communicator& world) { return world.implementation(); }) {
  local::run(world, [&](Communicator& communicator) {
    const TrainConfig config =
        make_train_config(Configuration::read(run.config(), overrides), world);
    const auto device = open();
    Communicator wrapped(wrap(communicator));
    train_rank(config, wrapped, *device);
  });
  return run.log();
}

std::string stage(int value) { return "zero_optimization.stage=" + std::to_string(value); }

/// Everything of a run that must not depend on how it was sharded.
Json results(const std::vector<Json>& log) {
  Json all;
  for (const Json& line : log) {
    for (const char* key :
         {"loss", "grad_norm", "learning_rate", "tokens", "state_hash", "validation_loss"}) {
      if (line.contains(key)) all.push_back(line[key]);
    }
  }
  return all;
}

TEST(Trainer, LogFollowsTheContract) {
  const TinyRun run;
  const auto log = train(run, 2, {"run.validation_every=2", "train_micro_batch_size_per_gpu=3"});
  ASSERT_EQ(log.size(), 4U);
  for (std::size_t i = 0; i < 3; ++i) {
    const Json& line = log[i];
    EXPECT_EQ(line["step"], i + 1);
    EXPECT_EQ(line["tokens"], 12 * 16);
    EXPECT_GT(line["loss"], 0.0);
    EXPECT_GT(line["grad_norm"], 0.0);
    EXPECT_NEAR(line["learning_rate"].get<double>(), 1e-2, 1e-9);
    EXPECT_NEAR(line["tokens_per_second"].get<double>() * line["step_seconds"].get<double>(), 192,
                1e-6);
    EXPECT_GE(line["exposed_communication_seconds"], 0.0);
    EXPECT_GE(line["communication_seconds"], 0.0);
    for (const char* key : {"all_gather_bytes", "reduce_scatter_bytes", "all_reduce_bytes"})
      EXPECT_GT(line["communication"][key], 0) << key;
    EXPECT_EQ(line.contains("validation_loss"), i == 1);
  }
  EXPECT_NEAR(log[0]["loss"].get<double>(), std::log(256.0), 0.3);
  const Json& last = log[3];
  EXPECT_EQ(last["final"], true);
  EXPECT_EQ(last["state_hash"].get<std::string>().size(), 16U);
  EXPECT_GT(last["validation_loss"], 0.0);
  EXPECT_EQ(last["plan_exact"], true);
  EXPECT_EQ(last["parameters"], 256 * 32 + 32 * 32 + 2 * (12 * 32 * 32 + 13 * 32) + 2 * 32);
  std::int64_t states = 0;
  for (const MemoryClass c : all_memory_classes()) {
    const Json& of = last["memory"][std::string(name_of(c))];
    EXPECT_EQ(of["planned"], of["peak"]) << name_of(c);
    if (c == MemoryClass::parameters || c == MemoryClass::gradients || c == MemoryClass::optimizer)
      states += of["peak"].get<std::int64_t>();
  }
  EXPECT_EQ(last["model_state_bytes"], states);
}

TEST(Trainer, AFolderOfWeightsHasTheTokenizerToo) {
  const TinyRun run;
  const std::string folder = run.folder().path("weights/");
  train(run, 1, {"data.tokenizer=bytes", "run.save_weights=" + folder});
  for (const char* name : {"config.json", "model.safetensors", "tokenizer.json"}) {
    EXPECT_TRUE(std::filesystem::is_regular_file(folder + name)) << name;
  }
}

TEST(ExposedUnits, NameThePlaceThatWaitsMost) {
  const Schedule schedule = make_schedule({.uses = {{0, Phase::forward},
                                                    {1, Phase::forward},
                                                    {1, Phase::backward},
                                                    {0, Phase::backward}},
                                           .units = {{}, {}},
                                           .limits = {}});
  ExposedUnits exposed({"embedding", "h.0"}, schedule);
  EXPECT_EQ(exposed.summary(), "");
  exposed.add(std::vector{0.001, 0.002, 0.003, 0.001}, 0.008, 0);
  exposed.add(std::vector{0.001, 0.001, 0.0, 0.0}, 0.004, 0);
  EXPECT_EQ(exposed.summary(), "exposed communication: 6.00 ms a step, most of it at h.0: 3.00 ms");
  exposed.add(std::vector{0.0, 0.0, 0.0, 0.0}, 0.012, 0.12);
  EXPECT_EQ(exposed.summary(),
            "exposed communication: 8.00 ms a step, most of it at the boundary: 5.00 ms; hidden: "
            "80 % of 40.00 ms");
  EXPECT_NEAR(exposed.json()["hidden_share"].get<double>(), 0.8, 1e-9);
  ExposedUnits all_hidden({"embedding", "h.0"}, schedule);
  all_hidden.add(std::vector{0.0, 0.0, 0.0, 0.0}, 0, 0.01);
  EXPECT_EQ(all_hidden.summary(), "hidden: 100 % of 10.00 ms");
}

TEST(Trainer, StagesAndWorldsGiveTheSameBits) {
  const TinyRun run;
  for (const char* dtype : {"bf16.enabled=false", "bf16.enabled=true", "fp16.enabled=true"}) {
    const Json expected = results(train(run, 1, {stage(0), dtype, "train_batch_size=16"}));
    ASSERT_EQ(expected.size(), 3 * 4 + 2U);
    for (const int value : {1, 2, 3}) {
      EXPECT_EQ(results(train(run, 2, {stage(value), dtype, "train_batch_size=16"})), expected)
          << "stage " << value;
    }
    EXPECT_EQ(results(train(run, 4,
                            {stage(3), dtype, "train_batch_size=16",
                             "zero_optimization.stage3_param_persistence_threshold=0",
                             "zero_optimization.stage3_prefetch_bucket_size=0",
                             "zero_optimization.reduce_bucket_size=1000"})),
              expected);
  }
}

TEST(Trainer, LateStreamsGiveTheSameBits) {
  const TinyRun run;
  const auto expected =
      results(train(run, 3, {stage(3), "zero_optimization.stage3_param_persistence_threshold=0"}));
  const auto open = [] {
    return testing::open({.policy = testing::StreamOrder::Policy::lazy, .seed = 1});
  };
  EXPECT_EQ(
      results(train(run, 3, {stage(3), "zero_optimization.stage3_param_persistence_threshold=0"},
                    open)),
      expected);
}

TEST(Trainer, ADeviceThatTheHostCannotSeeGivesTheSameBits) {
  const TinyRun run;
  const auto apart = [] { return testing::open({.memory = MemorySpace::device}); };
  std::vector<std::string> overrides = {stage(3), "run.validation_every=2", "bf16.enabled=true"};
  for (const std::string name : {"a.safetensors", "b.safetensors"}) {  // begun, gone on with
    overrides.push_back("run.save_weights=" + run.folder().path(name));
    const Json expected = results(train(run, 3, overrides));
    const std::string file = run.folder().read(name);
    const auto log = train(run, 3, overrides, apart);
    EXPECT_EQ(results(log), expected) << name;
    EXPECT_EQ(log.back()["plan_exact"], true) << log.back();
    EXPECT_EQ(run.folder().read(name), file);
    overrides.push_back("run.init=" + run.folder().path("a.safetensors"));
    overrides.push_back(stage(1));
  }
}

TEST(Trainer, TheSeedAndTheDataOrderChangeTheHash) {
  const TinyRun run;
  std::set<std::string> hashes;
  for (const auto& overrides : std::vector<std::vector<std::string>>{{},
                                                                     {"run.seed=8"},
                                                                     {"data.shuffle=true"},
                                                                     {"run.steps=2"},
                                                                     {"run.steps=0"},
                                                                     {"optimizer.type=SGD"},
                                                                     {"gradient_clipping=0.1"}}) {
    hashes.insert(train(run, 1, overrides).back()["state_hash"]);
  }
  EXPECT_EQ(hashes.size(), 7U);
}

TEST(Trainer, WeightsGoOutAndIn) {
  const TinyRun run;
  const std::string a = run.folder().path("a.safetensors");
  const std::string b = run.folder().path("b.safetensors");
  train(run, 2, {"run.save_weights=" + a});
  const auto log =
      train(run, 3, {"run.init=" + a, "run.save_weights=" + b, "run.steps=0", stage(1)});
  ASSERT_EQ(log.size(), 1U);
  EXPECT_EQ(run.folder().read("a.safetensors"), run.folder().read("b.safetensors"));
}

TEST(Trainer, ALlamaGoesOutAsAHuggingFaceFolderAndComesBack) {
  const TinyRun run;
  const std::string model =
      R"(model={"family": "llama", "layers": 2, "width": 32, "heads": 4, "kv_heads": 2, "intermediate": 48,
                "context": 32, "vocabulary": 256})";
  const std::string folder = run.folder().path("llama/");
  const std::string again = run.folder().path("again/");
  const auto alone = train(run, 1, {model, stage(0), "run.save_weights=" + folder});
  EXPECT_EQ(results(train(run, 2, {model, stage(3)})), results(alone));
  EXPECT_EQ(alone.back()["plan_exact"], true);
  train(
      run, 3,
      {"model={\"hf\": \"" + folder + "\"}", "run.save_weights=" + again, "run.steps=0", stage(1)});
  for (const char* name : {"config.json", "model.safetensors"}) {
    EXPECT_EQ(run.folder().read(std::string("llama/") + name),
              run.folder().read(std::string("again/") + name))
        << name;
  }
}

TEST(Trainer, ValidationDoesNotDependOnTheWorldOrOnAPartialBatch) {
  const TinyRun run;
  // 400 tokens: 24 sequences of 16; micro-batches of 5 leave a batch of 4.
  const auto loss = [&](int world, int micro) {
    return train(run, world,
                 {"run.steps=0", "train_batch_size=null",
                  "train_micro_batch_size_per_gpu=" + std::to_string(micro)})
        .back()["validation_loss"]
        .get<double>();
  };
  const double expected = loss(1, 5);
  EXPECT_EQ(loss(3, 5), expected);
  EXPECT_NEAR(loss(1, 1), expected, 1e-6);
  EXPECT_NEAR(loss(2, 24), expected, 1e-6);
  EXPECT_NEAR(loss(2, 30), expected, 1e-6);
  const auto none = train(run, 1, {"data.validation=null"});
  EXPECT_TRUE(none.back()["validation_loss"].is_null());
}

TEST(Trainer, SayWhichTensorStepAndRankWentWrong) {
  const TinyRun run;
  const std::string error = error_of([&] {
    train(run, 2,
          {"optimizer.type=SGD", "optimizer.params.lr=1e6", "gradient_clipping=0",
           "train_batch_size=4"});
  });
  EXPECT_THAT(error,
              AllOf(HasSubstr("step 2: the "), HasSubstr(" is NaN or infinite, first on rank "),
                    HasSubstr("Lower optimizer.params.lr")));
  EXPECT_EQ(run.log().size(), 1U);
}

TEST(Trainer, TheEndOfARunComparesWhatRanksHoldTwice) {
  const TinyRun run;
  const auto refusal = [&](const char* check) {
    return error_of([&] {
      train(
          run, 3, {stage(0), check}, [] { return cpu::open(); },
          [](const Communicator& world) { return std::make_shared<Flipping>(world, 2); });
    });
  };
  EXPECT_THAT(refusal("mesh.check_every=100"),
              AllOf(HasSubstr("check_replicas: after step 3 the "),
                    HasSubstr("\" on rank 2 differ from those on rank 0")));
  EXPECT_EQ(run.log().size(), 3U);  // no final line, so no hash that would speak for all
  EXPECT_EQ(refusal("mesh.check_every=0"), "no error");
}

TEST(RunLog, PlacesThatCannotBeWrittenAreNamed) {
  const Scratch folder;
  EXPECT_THAT(error_of([&] { RunLog(folder.path("none/run.log")); }),
              HasSubstr("run.log: cannot write"));
  EXPECT_THAT(error_of([&] { check_writable(folder.path("none/x"), "run.log"); }),
              HasSubstr("does not exist; make it first"));
  EXPECT_THAT(error_of([&] { check_writable(folder.path(), "run.log"); }),
              HasSubstr("is a folder"));
  EXPECT_EQ(error_of([&] { check_writable("x", "run.log"); }), "no error");
}

TEST(Plan, IsWhatARunUses) {
  const TinyRun run;
  const auto log = train(run, 3, {});
  const Plan plan =
      make_plan(make_train_config(Configuration::read(run.config(), {}), 3), BackendKind::local);
  const Json json = plan.json();
  EXPECT_EQ(json["parameters"], log.back()["parameters"]);
  EXPECT_EQ(json["model_state_bytes"], log.back()["model_state_bytes"]);
  for (const MemoryClass c : all_memory_classes()) {
    const std::string name(name_of(c));
    EXPECT_EQ(json["memory"][name]["planned"], log.back()["memory"][name]["planned"]) << name;
  }
  EXPECT_EQ(json["communication"], log[1]["communication"]);
  EXPECT_FALSE(plan.schedule.empty());
  EXPECT_THAT(plan.text(),
              AllOf(HasSubstr("stage 3, 3 rank(s)"), HasSubstr("reduce_scatter"),
                    HasSubstr("; --schedule prints it\n"), Not(HasSubstr("forward embedding"))));
  EXPECT_THAT(plan.text(LiveMemory::Labels::largest, true),
              AllOf(HasSubstr("forward embedding"), Not(HasSubstr("--schedule"))));
}

TEST(Plan, ListsFilesBesideMemoryAndComparesThem) {
  const auto device = planning::open();
  const Buffer memory = device->allocate(512, DType::fp32, MemoryClass::parameters, "weights");
  Plan plan;
  plan.memory = MemoryUse::of(*device);
  EXPECT_EQ(plan.json()["file"], Json::object());
  EXPECT_THAT(plan.text(), Not(HasSubstr("in files")));
  const MemoryUse without = plan.memory;
  const Buffer states = device->name_file_range(5000, MemoryClass::optimizer, "states");
  plan.memory = MemoryUse::of(*device);
  EXPECT_EQ(plan.memory.larger(without), plan.memory);
  EXPECT_EQ(without.larger(plan.memory), plan.memory);
  EXPECT_EQ(plan.json()["file"], (Json{{"optimizer", 8192}}));
  EXPECT_THAT(plan.text(), HasSubstr("\n  sum                2.00 KiB             2048 bytes\n"
                                     "\nin files, beside memory\n"
                                     "  optimizer          8.00 KiB             8192 bytes, "
                                     "read and written in a step\n"));
  local::run(2, [&](Communicator& world) {
    const auto own = cpu::open();
    const MemoryReport same = merge_memory(world, *own, plan.memory, plan.memory);
    EXPECT_TRUE(same.exact);
    EXPECT_EQ(same.used, plan.memory);
    EXPECT_THAT(same.table(), HasSubstr("  sum                2.00 KiB     2.00 KiB\n"
                                        "  in files, beside memory\n"
                                        "  optimizer          8.00 KiB     8.00 KiB\n"));
    const MemoryUse& used = world.rank() == 1 ? without : plan.memory;
    EXPECT_FALSE(merge_memory(world, *own, plan.memory, used).exact);
    EXPECT_THAT(merge_memory(world, *own, without, without).table(), Not(HasSubstr("in files")));
  });
}

}  // namespace
}  // namespace zero::testing
