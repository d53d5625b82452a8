// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "collectives/backends.h"
#include "collectives/host_values.h"
#include "engine/engine.h"
#include "launch/process/versions.h"
#include "launch/telemetry/run_report.h"
#include "launch/train/plan.h"
#include "launch/train/run_device.h"
#include "launch/train/training_state.h"
#include "model/model.h"
#include "model/unit_listener.h"
#include "ops/ops.h"
#include "tests/cuda/emulator/emulator.h"
#include "tests/cuda/library_attention.h"
#include "tests/errors.h"
#include "tests/launch/rank_threads.h"
#include "tests/launch/tiny_run.h"
#include "tests/launch/train_rank.h"

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

std::int64_t count_of_blocks(const DeviceBytes& bytes) {
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
std::vector<DeviceBytes> bytes_of_training(const TinyRun& run, int world,
                                           const std::vector<std::string>& overrides) {
  std::vector<DeviceBytes> used(static_cast<std::size_t>(world));
  local::run(world, [&](Communicator& ranks) {
    const TrainConfig config = config_of(run, world, overrides);
    RunDevice device(config, ranks, nullptr);
    train_rank(config, device.world(), device.device());
    used[static_cast<std::size_t>(ranks.rank())] = device.device().device_bytes();
    all_meet(ranks);
    if (ranks.rank() == 0) {
      std::int64_t pages = 0;
      std::int64_t blocks = 0;
      for (const DeviceBytes& each : used)
        pages += each.in_pages(), blocks += count_of_blocks(each);
      EXPECT_EQ(static_cast<std::int64_t>(cuda::emulated::requests().size()), blocks);
      EXPECT_EQ(taken_of_gpu(), pages);
    }
    all_meet(ranks);
  });
  return used;
}

TEST(EmulatedRun, TakesABlockForEachClassAsPlannedAndNoMore) {
  const TinyRun run;
  for (const int stage : {0, 1, 2, 3}) {
    cuda::emulated::reset({});
    const std::string of_stage = "zero_optimization.stage=" + std::to_string(stage);
    std::vector<std::string> overrides{of_stage, "train_batch_size=8"};
    if (stage % 2 == 0) overrides.emplace_back("bf16.enabled=true");
    const std::vector<DeviceBytes> used = bytes_of_training(run, 2, overrides);
    const Json last = run.log().back();
    EXPECT_EQ(last["plan_exact"], true) << last["device"];
    EXPECT_EQ(last["device"]["planned"], last["device"]["used"]);
    for (int rank = 0; rank < 2; ++rank) {
      const MemoryUse plan = plan_memory(config_of(run, 2, overrides), rank, 2, BackendKind::local,
                                         MemorySpace::device);
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
    bytes_of_training(run, world, overrides);
    cuda::emulated::reset();
    EXPECT_GT(run.log().front()["submit_seconds"], 0);
    return run.log().back();
  };
  const Json kept = last(1, {"train_batch_size=4"});
  EXPECT_EQ(kept["graphs"]["passes"], 2 * 3);  // of two blocks: forward, backward, validation
  EXPECT_GT(kept["graphs"]["pieces"], 2 * (6 + 12 + 6));
  EXPECT_THAT(std::string(kept["graphs"]["text"]), HasSubstr("graphs: 6 passes captured, of "));
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
            "graphs: 2 pass(es) captured, 1 submitted kernel by kernel: no memory");
}

TEST(EmulatedRun, ComputesAgainWithinItsGraphsAndInThePlannedBlocks) {
  const TinyRun run;
  const auto last = [&](int world, std::vector<std::string> overrides) {
    cuda::emulated::reset({});
    overrides.insert(overrides.end(), {"run.steps=1", "train_batch_size=8", "bf16.enabled=true"});
    bytes_of_training(run, world, overrides);
    cuda::emulated::reset();
    EXPECT_EQ(run.log().back()["plan_exact"], true) << run.log().back()["device"];
    return run.log().back();
  };
  const std::string key = "activation_checkpointing.";
  for (const auto& [world, extra] :
       std::vector<std::pair<int, std::string>>{{1, "mesh.tensor=1"}, {2, "mesh.tensor=2"}}) {
    const Json none = last(world, {extra});
    const Json full = last(world, {extra, key + "recompute=full"});
    const Json group =
        last(world, {extra, key + "number_checkpoints=1", key + "partition_activations=true"});
    const Json some = last(world, {extra, key + "recompute=selective"});
    for (const Json& each : {full, group, some}) {
      EXPECT_EQ(each["state_hash"], none["state_hash"]);
      EXPECT_EQ(each["validation_loss"], none["validation_loss"]);
      EXPECT_LT(each["device"]["used"]["arenas"]["activations"],
                none["device"]["used"]["arenas"]["activations"]);
    }
    if (world > 1) continue;
    EXPECT_EQ(full["graphs"]["passes"], none["graphs"]["passes"]);
    EXPECT_GT(full["graphs"]["pieces"], none["graphs"]["pieces"]);
    EXPECT_EQ(group["graphs"]["passes"], int{none["graphs"]["passes"]} + 1);
  }
}

TEST(EmulatedRun, TakesNoMoreForWeightsThatComeAndGo) {
  const TinyRun run;
  const std::string weights = run.folder().path("w.safetensors");
  cuda::emulated::reset({});
  bytes_of_training(run, 1, {"run.save_weights=" + weights});
  cuda::emulated::reset({});
  bytes_of_training(run, 2, {"run.init=" + weights, "zero_optimization.stage=2"});
  EXPECT_EQ(run.log().back()["plan_exact"], true) << run.log().back()["device"];
  cuda::emulated::reset();
}

/// Throws when it hears of its third operation.
class Stumbling final : public UnitListener {
 public:
  void begin(const OpCost& cost) override {
    if (++heard_ == 3) fail("stumbled over {}", cost.name);
  }
  void end() noexcept override {}
  void unit(std::string_view /*name*/, Phase /*phase*/) override {}

 private:
  int heard_ = 0;
};

TEST(EmulatedRun, ThatEndsByAnErrorLetsItsWorkEndBeforeItsMemory) {
  const TinyRun run;
  cuda::emulated::reset({});
  local::run(1, [&](Communicator& rank) {
    const TrainConfig config = config_of(run, 1, {"train_batch_size=2"});
    RunDevice device(config, rank, nullptr);
    Mesh mesh(device.world(), config.mesh);
    EXPECT_THAT(error_of([&] {
                  Stumbling listener;
                  TrainingState training_state(config, mesh, device.device(), &listener);
                  for (const View& ids : {training_state.inputs(), training_state.targets()}) {
                    std::ranges::fill(ids.as<std::int32_t>(), 1);
                  }
                  training_state.model().train(training_state.inputs(), training_state.targets(), 1,
                                               training_state.loss());
                }),
                HasSubstr("stumbled over"));
    device.device().compute().synchronize();  // copies from and to memory that is gone would fault
  });
  cuda::emulated::reset();
}

/// How often the host was stopped by a run on one rank, and what its log says.
struct Stops {
  std::int64_t stops = 0;
  std::vector<double> losses{};
  std::string hash{};
};

Stops stops_of(const TinyRun& run, const cuda::emulated::Settings& settings, int micro_batches) {
  cuda::emulated::reset(settings);
  bytes_of_training(run, 1,
                    {"run.steps=3", "data.validation=null", "train_micro_batch_size_per_gpu=2",
                     "train_batch_size=" + std::to_string(2 * micro_batches)});
  Stops course{.stops = cuda::emulated::synchronizations()};
  for (const Json& line : run.log()) {
    if (line.contains("loss")) course.losses.push_back(line["loss"]);
  }
  course.hash = run.log().back()["state_hash"];
  cuda::emulated::reset();
  return course;
}

TEST(EmulatedRun, ASecondMicroBatchStopsTheHostNoMoreOften) {
  const TinyRun run;
  EXPECT_EQ(stops_of(run, {}, 2).stops, stops_of(run, {}, 1).stops);
}

TEST(EmulatedRun, LossesAreReadBehindTheirMicroBatchesInAnyOrder) {
  using Order = cuda::emulated::Settings::Order;
  const TinyRun run;
  const Stops expected = stops_of(run, {.order = Order::prompt}, 3);
  EXPECT_EQ(expected.losses.size(), 3U);
  for (const std::uint64_t seed : {1, 2}) {
    const Stops found = stops_of(run, {.order = Order::seeded, .seed = seed}, 3);
    EXPECT_EQ(found.losses, expected.losses);
    EXPECT_EQ(found.hash, expected.hash);
  }
}

/// The state after a step on more rows than a GPU has logits of at a time.
std::uint64_t state_after_many_rows(const TinyRun& run, int stage) {
  constexpr int kRanks = 2;
  const TrainConfig config =
      config_of(run, kRanks,
                {"model.layers=1", "model.vocabulary=32", "train_micro_batch_size_per_gpu=260",
                 "train_batch_size=520", "bf16.enabled=true",
                 "zero_optimization.stage=" + std::to_string(stage)});
  std::uint64_t hash = 0;
  cuda::emulated::reset({});
  local::run(kRanks, [&](Communicator& rank) {
    RunDevice device(config, rank, nullptr);
    Mesh mesh(device.world(), config.mesh);
    TrainingState training_state(config, mesh, device.device());
    for (const View& ids : {training_state.inputs(), training_state.targets()}) {
      std::int32_t next = rank.rank();
      for (std::int32_t& id : ids.as<std::int32_t>()) id = next = (next * 5 + 3) % 32;
    }
    EXPECT_GT(training_state.inputs().count(), device.device().piece_sizes().logit_rows);
    training_state.model().train(training_state.inputs(), training_state.targets(), 1.0F / 8320,
                                 training_state.loss());
    training_state.engine().step({.learning_rate = 0.1});
    EXPECT_EQ(
        device.device().device_bytes(),
        plan_memory(config, rank.rank(), kRanks, BackendKind::local, MemorySpace::device).device);
    const std::uint64_t found = training_state.engine().states().hash();
    if (rank.rank() == 0) hash = found;
  });
  cuda::emulated::reset();
  return hash;
}

TEST(EmulatedRun, RowsBeyondAGpusPieceOfLogitsAreAsPlannedAndTheSameAtEveryStage) {
  const TinyRun run;
  const std::uint64_t expected = state_after_many_rows(run, 0);
  EXPECT_NE(expected, 0U);
  EXPECT_EQ(state_after_many_rows(run, 3), expected);
}

TEST(EmulatedRun, AGpuReceivesLongerSlicesThanACpu) {
  const TinyRun run;
  const auto received = [&](const char* bucket) {  // with buckets of so many elements
    const TrainConfig config =
        config_of(run, 2,
                  {"model.layers=1", "model.width=1024", "model.heads=16",
                   std::string("zero_optimization.reduce_bucket_size=") + bucket});
    return plan_memory(config, 0, 2, BackendKind::nccl, MemorySpace::device).device.adopted;
  };
  // Slices of 4 MiB, and those of a block's 12.6 million fp32 gradients over two ranks.
  EXPECT_GT(received("500000000") - received("2097152"), std::int64_t{16} << 20);
}

TEST(EmulatedRun, SaysWhatThePlanDidNotHave) {
  cuda::emulated::reset({});
  local::run(1, [](Communicator& rank) {
    const auto plan = planning::open(1, MemorySpace::device, DeviceKind::cuda);
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
  EXPECT_THAT(libraries_text(DeviceKind::cuda), Not(HasSubstr("driver")));
  cuda::emulated::reset({.driver_version = 0});
  EXPECT_THAT(version_text(), HasSubstr("\nCUDA of the driver: none"));
  cuda::emulated::reset();
}

TEST(EmulatedRun, ThatDoesNotFitEndsBeforeItsFirstStep) {
  const TinyRun run;
  cuda::emulated::reset({.memory = 3 << 20});
  EXPECT_THAT(error_of([&] { bytes_of_training(run, 2, {}); }),
              AllOf(HasSubstr("device cuda:0: out of memory before the first step"),
                    HasSubstr("no room for its ")));
  cuda::emulated::reset();
}

TEST(EmulatedRun, AttentionThatTheLibraryRefusesIsOurOwnKernels) {
  using cuda::library_attention::Kind;
  const TinyRun run;
  const auto last = [&](Kind kind) {
    cuda::emulated::reset({});
    cuda::library_attention::become(kind);
    bytes_of_training(run, 2, {"bf16.enabled=true", "train_batch_size=4"});
    const auto device = cuda::open();
    const auto ops = make_ops(*device);
    const AttentionShape shape{
        .batch = 1, .sequence = 16, .heads = 1, .head_width = 8, .dtype = DType::bf16};
    ops->prepare(shape);
    const std::string note = ops->note();
    const std::string bits = ops->bits(DType::bf16);
    cuda::library_attention::become(Kind::none);
    EXPECT_EQ(note.empty(), kind == Kind::none);
    if (kind == Kind::refuses) {
      EXPECT_EQ(note,
                "attention on cuda:0 is computed by our own kernels, which are slower: cuda: "
                "cuDNN: a plan of attention of 1 x 16: no engine");
    }
    if (kind == Kind::throws) {
      EXPECT_EQ(note,
                "attention on cuda:0 is computed by our own kernels, which are slower: no "
                "implementation");
    }
    if (kind != Kind::none) {
      EXPECT_THAT(bits, HasSubstr("attention by our own kernels, not cuDNN"));
    }
    return run.log().back();
  };
  const Json own = last(Kind::none);
  for (const Kind kind : {Kind::refuses, Kind::throws}) {
    const Json refused = last(kind);
    EXPECT_EQ(refused["state_hash"], own["state_hash"]);
    EXPECT_EQ(refused["plan_exact"], true) << refused["device"];
  }
  cuda::emulated::reset();
}

TEST(EmulatedRun, APlanShowsWhatTheGpuGives) {
  const TinyRun run;
  const TrainConfig config = config_of(run, 2, {"model.width=512", "model.heads=8"});
  const Plan threads = make_plan(config, BackendKind::local);
  EXPECT_THAT(threads.text(), AllOf(HasSubstr("of the GPU: a block for each class, aligned"),
                                    HasSubstr("in pages"), Not(HasSubstr("NCCL's own"))));
  EXPECT_EQ(threads.json()["device"]["pages"], threads.memory.device.in_pages());
  const Plan nccl = make_plan(config, BackendKind::nccl);
  EXPECT_THAT(nccl.text(), HasSubstr("NCCL's own"));
  EXPECT_GT(nccl.json()["device"]["adopted"], std::int64_t{4} << 20);
  EXPECT_GE(nccl.json()["device"]["arenas"]["communication"], std::int64_t{8} << 20);
}

}  // namespace
}  // namespace zero::testing
