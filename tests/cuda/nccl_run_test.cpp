// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <numeric>

#include "base/checked_math.h"
#include "collectives/backends.h"
#include "files/disk_calls.h"
#include "launch/data/batches.h"
#include "launch/telemetry/output.h"
#include "launch/train/plan.h"
#include "launch/train/run_device.h"
#include "launch/train/trainer.h"
#include "tests/cuda/emulator/emulator.h"
#include "tests/launch/tiny_run.h"
#include "tests/nccl/fake_nccl.h"

// A run as zero_train makes it on GPUs that talk through NCCL's fake, each rank's its own: what the
// driver is asked for is the plan's.
namespace zero::testing {
namespace {

using ::testing::ElementsAreArray;

/// What the driver was asked for on one GPU.
std::vector<std::int64_t> requests_of(int device) {
  std::vector<std::int64_t> bytes;
  for (const cuda::emulated::Request& each : cuda::emulated::requests()) {
    if (each.device == device) bytes.push_back(static_cast<std::int64_t>(each.bytes));
  }
  return bytes;
}

/// The blocks that a plan has, each in whole pages.
std::vector<std::int64_t> blocks_of(const DeviceBytes& plan) {
  std::vector<std::int64_t> blocks;
  for (const std::int64_t bytes : plan.arenas) {
    if (bytes > 0) blocks.push_back(round_up(bytes, DeviceBytes::kPage));
  }
  return blocks;
}

/// One rank's run: what it has asked for before its first step is the plan's, and all.
void run_as_planned(const TrainConfig& config, Communicator& host) {
  const int rank = host.rank();
  const DeviceBytes plan =
      plan_memory(config, rank, host.size(), BackendKind::nccl, MemorySpace::device).device;
  EXPECT_GT(plan.adopted, 0);
  const Batches batches(config, rank);
  Console console(stdout, Console::Mode::silent);
  const auto log = rank == 0 ? std::make_unique<RunLog>(config.run.log) : nullptr;
  RunDevice device(config, host, nullptr);
  EXPECT_THAT(requests_of(rank), ElementsAreArray(blocks_of(plan)));
  Mesh mesh(device.world(), config.mesh);
  Trainer trainer({.config = config,
                   .batches = batches,
                   .mesh = mesh,
                   .device = device.device(),
                   .console = console,
                   .log = log.get()});
  const std::vector<std::int64_t> asked = requests_of(rank);
  EXPECT_EQ(std::accumulate(asked.begin(), asked.end(), std::int64_t{0}), plan.in_pages());
  const std::vector<std::int64_t> of_nccl(
      asked.begin() + static_cast<std::ptrdiff_t>(blocks_of(plan).size()), asked.end());
  EXPECT_EQ(std::accumulate(of_nccl.begin(), of_nccl.end(), std::int64_t{0}), plan.adopted);
  trainer.run();
  EXPECT_THAT(requests_of(rank), ElementsAreArray(asked));
  EXPECT_EQ(device.device().device_bytes(), plan);
}

constexpr int kRanks = 2;

/// Of a vocabulary whose table NCCL gives memory for. Its GPUs are new.
TrainConfig config_of(const TinyRun& run, const std::string& stage) {
  test::fake_nccl::reset();
  cuda::emulated::reset({.devices = kRanks});
  return make_train_config(
      Configuration::read(
          run.config(),
          {"zero_optimization.stage=" + stage, "run.device=cuda", "data.validation=null",
           "model.vocabulary=66000", "model.width=8", "model.layers=1", "run.steps=1",
           "data.sequence_length=4", "train_micro_batch_size_per_gpu=1", "train_batch_size=2"}),
      kRanks);
}

/// Which a watchdog takes for no endless loop.
TEST(EmulatedNcclRun, CountsTheStartsOfDriverDeviceAndNcclAsCallsWithoutASignOfLife) {
  const TinyRun run;
  const TrainConfig config = config_of(run, "1");
  const std::int64_t before = files::disk_calls().begun;
  local::run(kRanks, [&](Communicator& host) { const RunDevice device(config, host, nullptr); });
  EXPECT_EQ(files::disk_calls().begun - before, 3 * kRanks);
}

TEST(EmulatedNcclRun, AsksTheDriverForWhatIsPlannedBeforeItsFirstStepAndForNothingAfter) {
  const TinyRun run;
  for (const char* stage : {"1", "3"}) {
    const TrainConfig config = config_of(run, stage);
    local::run(kRanks, [&](Communicator& host) { run_as_planned(config, host); });
    EXPECT_EQ(make_plan(config, BackendKind::nccl).memory.device,
              plan_memory(config, 0, kRanks, BackendKind::nccl, MemorySpace::device).device);
    EXPECT_EQ(run.log().back()["plan_exact"], true) << run.log().back()["device"];
    EXPECT_GT(test::fake_nccl::posted(0).size(), 5U);
    EXPECT_EQ(test::fake_nccl::alive(), 0);
    cuda::emulated::reset();
  }
}

}  // namespace
}  // namespace zero::testing
