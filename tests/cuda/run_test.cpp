// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "collectives/backends.h"
#include "collectives/host_values.h"
#include "launch/graphs_report.h"
#include "launch/plan.h"
#include "launch/process.h"
#include "launch/run_device.h"
#include "launch/trainer.h"
#include "tests/cuda/emulator/emulator.h"
#include "tests/errors.h"
#include "tests/launch/tiny_run.h"

// Runs as zero_train makes them, on the emulated GPU: what they take of it is what was planned.
namespace zero::testing {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using Json = nlohmann::json;

TrainConfig config_of(const TinyRun& run, int world, std::vector<std::string> overrides) {
  for (const char* each : {"run.device=cuda", "model.width=16", "run.steps=1"}) {
    overrides.insert(overrides.begin(), each);
  }
  return make_train_config(Configuration::read(run.config(), overrides), world);
}

void meet(Communicator& ranks) {
  const auto device = cpu::open();
  ranks.barrier(device->communication(), {"test", {}});
  device->communication().synchronize();
}

std::int64_t blocks_of(const DeviceBytes& bytes) {
  return std::ranges::count_if(bytes.arenas, [](std::int64_t each) { return each > 0; });
}

/// What the emulated GPU has given to all who use it.
std::int64_t taken_of_gpu() {
  std::size_t free = 0;
  std::size_t total = 0;
  EXPECT_EQ(cudaMemGetInfo(&free, &total), cudaSuccess);
  return static_cast<std::int64_t>(total - free);
}

/// Trains on `world` ranks that share the GPU; what each device had to have in the end.
std::vector<DeviceBytes> train(const TinyRun& run, int world,
                               const std::vector<std::string>& overrides) {
  std::vector<DeviceBytes> used(static_cast<std::size_t>(world));
  local::run(world, [&](Communicator& ranks) {
    const TrainConfig config = config_of(run, world, overrides);
    const Batches batches(config, ranks.rank());
    Console console(stdout, Console::Mode::silent);
    const auto log = ranks.rank() == 0 ? std::make_unique<RunLog>(config.run.log) : nullptr;
    RunDevice device(config, ranks, nullptr);
    Mesh mesh(device.world(), config.mesh);
    Trainer({.config = config,
             .batches = batches,
             .mesh = mesh,
             .device = device.device(),
             .console = console,
             .log = log.get()})
        .run();
    used[static_cast<std::size_t>(ranks.rank())] = device.device().device_bytes();
    meet(ranks);
    if (ranks.rank() == 0) {
      std::int64_t pages = 0;
      std::int64_t blocks = 0;
      for (const DeviceBytes& each : used) pages += each.in_pages(), blocks += blocks_of(each);
      EXPECT_EQ(static_cast<std::int64_t>(cuda::emulated::requests().size()), blocks);
      EXPECT_EQ(taken_of_gpu(), pages);
    }
    meet(ranks);
  });
  return used;
}

TEST(EmulatedRun, TakesABlockForEachClassAsPlannedAndNoMore) {
  const TinyRun run;
  for (const int stage : {0, 1, 2, 3}) {
    cuda::emulated::reset({});
    const std::string of_stage = "zero_optimization.stage=" + std::to_string(stage);
    std::vector<std::string> overrides{of_stage, "train_batch_size=8", "run.sample=1"};
    if (stage % 2 == 0) overrides.emplace_back("bf16.enabled=true");
    const std::vector<DeviceBytes> used = train(run, 2, overrides);
    const Json last = run.log().back();
    EXPECT_EQ(last["plan_exact"], true) << last["device"];
    EXPECT_EQ(last["device"]["planned"], last["device"]["used"]);
    for (int rank = 0; rank < 2; ++rank) {
      const MemoryUse plan =
          plan_memory(config_of(run, 2, overrides), rank, 2, "local", Memory::apart);
      EXPECT_EQ(plan.device, used[static_cast<std::size_t>(rank)])
          << "stage " << stage << ", rank " << rank;
    }
    cuda::emulated::reset();
  }
}

TEST(EmulatedRun, SaysWhatWasKeptAsGraphsOrWhyNot) {
  const TinyRun run;
  const auto last = [&](int world, std::vector<std::string> overrides) {
    cuda::emulated::reset({});
    overrides.emplace_back("run.steps=1");
    train(run, world, overrides);
    cuda::emulated::reset();
    EXPECT_GT(run.log().front()["submit_seconds"], 0);
    return run.log().back();
  };
  const Json kept = last(1, {"train_batch_size=4"});
  EXPECT_EQ(kept["graphs"]["passes"], 2 * 3);  // of two blocks: forward, backward, validation
  EXPECT_GT(kept["graphs"]["pieces"], 2 * (6 + 12 + 6));
  EXPECT_THAT(std::string(kept["graphs"]["text"]),
              AllOf(HasSubstr("graphs: 6 passes of units"), HasSubstr("were kept")));
  const Json off = last(1, {"train_batch_size=4", "run.graphs=false"});
  EXPECT_EQ(off["graphs"]["text"], "graphs: none, run.graphs is false");
  EXPECT_EQ(off["state_hash"], kept["state_hash"]);
  EXPECT_EQ(off["validation_loss"], kept["validation_loss"]);
  EXPECT_EQ(last(1, {"train_batch_size=2", "data.validation=null"})["graphs"]["text"],
            "graphs: none, no pass came a second time");
  EXPECT_EQ(last(2, {"train_batch_size=4", "mesh.tensor=2"})["graphs"]["text"],
            "graphs: none, collectives of the tensor group lie inside the passes");
  EXPECT_EQ(graphs_text({}, config_of(run, 1, {"run.profile=true"})),
            "graphs: none, every operation was timed");
  EXPECT_EQ(graphs_text({2, 9, 1, "no memory"}, config_of(run, 1, {})),
            "graphs: 2 pass(es) of units kept, 1 submitted piece by piece: no memory");
}

TEST(EmulatedRun, TakesNoMoreForWeightsThatComeAndGo) {
  const TinyRun run;
  const std::string weights = run.folder().file("w.safetensors");
  cuda::emulated::reset({});
  train(run, 1, {"run.save_weights=" + weights});
  cuda::emulated::reset({});
  train(run, 2, {"run.init=" + weights, "zero_optimization.stage=2"});
  EXPECT_EQ(run.log().back()["plan_exact"], true) << run.log().back()["device"];
  cuda::emulated::reset();
}

TEST(EmulatedRun, SaysWhatThePlanDidNotHave) {
  cuda::emulated::reset({});
  local::run(1, [](Communicator& rank) {
    const auto plan = planning::open(1, Memory::apart, "cuda");
    const auto device = cuda::open({.reserve = plan->device_bytes().arenas});
    const MemoryUse planned = MemoryUse::of(*plan);
    EXPECT_TRUE(merge_memory(rank, *device, planned, MemoryUse::of(*device)).exact);
    device->allocate(1, DType::u8, MemoryClass::gathered, "unforeseen");
    const MemoryReport report = merge_memory(rank, *device, planned, MemoryUse::of(*device));
    EXPECT_FALSE(report.exact);
    EXPECT_EQ(report.used.device.arenas[1], 2 << 20);
  });
  cuda::emulated::reset();
}

TEST(EmulatedRun, NamesTheVersionsOfItsLibraries) {
  cuda::emulated::reset({.driver_version = 13010});
  EXPECT_THAT(version_text(),
              AllOf(HasSubstr("\nCUDA: 13.0\ncuBLASLt: 1.0.0, of naive loops\ncuDNN: not in this "
                              "build, whose own kernels compute attention"),
                    HasSubstr("\nCUDA of the driver: 13.1")));
  EXPECT_THAT(libraries_text(), Not(HasSubstr("driver")));
  cuda::emulated::reset({.driver_version = 0});
  EXPECT_THAT(version_text(), HasSubstr("\nCUDA of the driver: none"));
  cuda::emulated::reset();
}

TEST(EmulatedRun, ThatDoesNotFitEndsBeforeItsFirstStep) {
  const TinyRun run;
  cuda::emulated::reset({.memory = 3 << 20});
  EXPECT_THAT(message_of([&] { train(run, 2, {}); }),
              AllOf(HasSubstr("device cuda:0: out of memory before the first step"),
                    HasSubstr("no room for its ")));
  cuda::emulated::reset();
}

TEST(EmulatedRun, APlanShowsWhatTheGpuGives) {
  const TinyRun run;
  const TrainConfig config = config_of(run, 2, {"model.width=512", "model.heads=8"});
  const Plan threads = make_plan(config, "local");
  EXPECT_THAT(threads.text(), AllOf(HasSubstr("of the GPU: a block for each class, aligned"),
                                    HasSubstr("in pages"), Not(HasSubstr("NCCL's own"))));
  EXPECT_EQ(threads.json()["device"]["pages"], threads.memory.device.in_pages());
  const Plan nccl = make_plan(config, "nccl");
  EXPECT_THAT(nccl.text(), HasSubstr("NCCL's own"));
  EXPECT_GT(nccl.json()["device"]["adopted"], std::int64_t{4} << 20);
  EXPECT_GE(nccl.json()["device"]["arenas"]["communication"], std::int64_t{8} << 20);
}

}  // namespace
}  // namespace zero::testing
