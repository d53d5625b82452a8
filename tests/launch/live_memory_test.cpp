// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#include "launch/train/live_memory.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <numeric>
#include <sstream>

#include "base/sign_of_life.h"
#include "collectives/backends.h"
#include "engine/engine.h"
#include "launch/process/quantity.h"
#include "launch/train/plan.h"
#include "launch/train/training_state.h"
#include "tests/launch/config_with.h"
#include "tests/scratch.h"

// What a plan says is live in a step, beside what it says is allocated.
namespace zero::testing {
namespace {

using ::testing::HasSubstr;

using Overrides = std::vector<std::string>;

LiveMemory live_with(const Overrides& overrides, int world = 1, int rank = 0) {
  return plan_live(config_with(overrides, world), rank, world, BackendKind::local);
}

std::int64_t of(const LiveMemory::Moment& moment, MemoryClass c) { return at(moment.bytes, c); }

const LiveMemory::Moment& phase(const LiveMemory& live, std::string_view name) {
  return *std::ranges::find(live.phases, name, &LiveMemory::Moment::name);
}

/// Bytes at the peak of all tensors of one name.
std::int64_t at_peak(const LiveMemory& live, std::string_view what) {
  std::int64_t bytes = 0;
  for (const LiveMemory::Tensor& tensor : live.tensors)
    bytes += tensor.what == what ? tensor.bytes : 0;
  return bytes;
}

std::vector<std::pair<Overrides, int>> choices() {
  std::vector<std::pair<Overrides, int>> all;
  for (const char* stage : {"0", "1", "2", "3"}) {
    const std::string key = std::string("zero_optimization.stage=") + stage;
    all.push_back({{key}, 1});
    all.push_back({{key, "bf16.enabled=true"}, 2});
    all.push_back({{key, "gradient_accumulation_steps=4", "bf16.enabled=true"}, 2});
    all.push_back({{key, "activation_checkpointing.recompute=full", "model.layers=3"}, 4});
    all.push_back({{key, "mesh.tensor=2", "activation_checkpointing.number_checkpoints=2"}, 2});
    all.push_back({{key, "mesh.tensor=2", "mesh.sequence_parallel=true", "bf16.enabled=true"}, 4});
    all.push_back({{key, "optimizer.params.moments=8bit", "run.checkpoint.folder=none"}, 2});
  }
  return all;
}

// A watchdog would take the plan of a model of many units for an endless loop.
TEST(PlanMemory, GivesSignsOfLifeForEachUnit) {
  const TrainConfig config = config_with({"model.layers=6"}, 2);
  const std::int64_t before = signs_of_life();
  static_cast<void>(plan_memory(config, 0, 2, BackendKind::local));
  EXPECT_GE(signs_of_life() - before, 2 * 6) << "where it is added, and where it is laid out";
}

TEST(LiveMemory, IsNeverAboveWhatIsAllocatedInAnyClassAndPhase) {
  for (const auto& [overrides, world] : choices()) {
    const TrainConfig config = config_with(overrides, world);
    for (int rank = 0; rank < world; ++rank) {
      const LiveMemory live = plan_live(config, rank, world, BackendKind::local);
      EXPECT_EQ(live.allocated, plan_memory(config, rank, world, BackendKind::local).ledger);
      ASSERT_EQ(live.phases.size(), 5U);
      std::vector<LiveMemory::Moment> moments = live.phases;
      moments.push_back(live.peak);
      for (const LiveMemory::Moment& moment : moments) {
        for (const MemoryClass c : all_memory_classes()) {
          EXPECT_LE(of(moment, c), at(live.allocated, c))
              << moment.name << ", " << name_of(c) << ", " << overrides.front() << ", rank "
              << rank;
        }
        EXPECT_LE(moment.sum(), live.peak.sum()) << moment.name;
      }
    }
  }
}

TEST(LiveMemory, OfThePeakIsTheSumOfItsTensors) {
  for (const auto& [overrides, world] : choices()) {
    const LiveMemory live = live_with(overrides, world);
    BytesByClass bytes{};
    for (const LiveMemory::Tensor& tensor : live.tensors)
      bytes[static_cast<std::size_t>(tensor.memory_class)] += tensor.bytes;
    EXPECT_EQ(bytes, live.peak.bytes);
    EXPECT_TRUE(std::ranges::is_sorted(live.tensors, std::greater(), &LiveMemory::Tensor::bytes));
  }
}

// The twelve blocks of docs/memory.md: 4 x 512 rows of width 768, 12 heads, fp32.
TEST(LiveMemory, OfTwelveBlocksIsWhatTheyKeep) {
  const LiveMemory live =
      live_with({"model.layers=12", "model.width=768", "model.heads=12", "model.context=512",
                 "model.vocabulary=3894", "train_batch_size=4", "zero_optimization.stage=0"});
  constexpr std::int64_t kRows = 4 * 512;
  constexpr std::int64_t kWidth = kRows * 768 * 4;  // C elements of every row
  const std::map<std::string_view, std::int64_t> a_block{{"x", kWidth},
                                                         {"qkv", 3 * kWidth},
                                                         {"attended", kWidth},
                                                         {"middle", kWidth},
                                                         {"hidden", 4 * kWidth},
                                                         {"logsumexp", kRows * 12 * 4},
                                                         {"statistics", kRows * 8},
                                                         {"middle_statistics", kRows * 8}};
  std::int64_t kept = 0;
  for (const auto& [name, bytes] : a_block) {
    EXPECT_EQ(at_peak(live, name), 12 * bytes) << name;
    kept += 12 * bytes;
  }
  EXPECT_EQ(kept, 756'547'584);  // 721.5 MiB: 30,784 bytes a row and block
  // Behind forward also the last norm's input, statistics and output.
  EXPECT_EQ(of(phase(live, "forward"), MemoryClass::activations), kept + 2 * kWidth + kRows * 8);
  EXPECT_EQ(of(phase(live, "before"), MemoryClass::activations), 0);
  EXPECT_EQ(of(phase(live, "backward"), MemoryClass::activations), 0);
  // GELU's output is computed again in the place of its input, so no work has more alive than the
  // product before: dx and, four times as wide, the gradient that it writes.
  EXPECT_EQ(live.peak.name, "backward of h.11: linear_backward_input 3072x768");
  EXPECT_EQ(at_peak(live, "dx"), kWidth);
  EXPECT_EQ(at_peak(live, "dhidden"), 4 * kWidth);
  EXPECT_EQ(at_peak(live, "activated"), 0);
  // What a rank has as gradients then: those of the last block and of the embedding.
  const std::int64_t block = 12 * 768 * 768 + 13 * 768;
  const std::int64_t embedding = (3894 + 512) * 768;
  EXPECT_EQ(of(live.peak, MemoryClass::gradients), 4 * (block + embedding + 2 * 768));
}

TEST(LiveMemory, OfStatesIsThatOfTheStage) {
  constexpr std::int64_t kBlock = 12 * 64 * 64 + 13 * 64;
  constexpr std::int64_t kAll = 2 * kBlock + (256 + 32) * 64 + 2 * 64;  // of multiples of 64
  constexpr std::int64_t kPadded = kAll + 2 * 64;  // a block's two shards are multiples of 64, too
  const LiveMemory zero = live_with({"zero_optimization.stage=0"});
  for (const LiveMemory::Moment& moment : zero.phases) {
    EXPECT_EQ(of(moment, MemoryClass::parameters), 4 * kAll) << moment.name;
    EXPECT_EQ(of(moment, MemoryClass::optimizer), 8 * kAll) << moment.name;
    const std::int64_t gradients = of(moment, MemoryClass::gradients);
    const std::int64_t expected = moment.name == "backward" ? 4 * kAll : 0;
    const bool known = expected > 0 || moment.name == "before" || moment.name == "step";
    EXPECT_EQ(known ? gradients : 0, expected) << moment.name;
  }
  const LiveMemory two = live_with({"zero_optimization.stage=2", "bf16.enabled=true"}, 2);
  EXPECT_EQ(of(phase(two, "before"), MemoryClass::parameters), 2 * kPadded);
  EXPECT_EQ(of(phase(two, "before"), MemoryClass::optimizer), 12 * kPadded / 2);
  EXPECT_EQ(of(phase(two, "backward"), MemoryClass::gradients), 2 * kPadded / 2);
  EXPECT_EQ(of(phase(two, "forward"), MemoryClass::gathered), 0);
}

// Sums of earlier micro-batches: none before the first, one for every bit of their number.
TEST(LiveMemory, OfAccumulationIsTheSumsThatAreHeld) {
  const LiveMemory live = live_with({"zero_optimization.stage=2", "train_batch_size=4",
                                     "bf16.enabled=true", "gradient_accumulation_steps=4"});
  EXPECT_EQ(of(phase(live, "before"), MemoryClass::gradients), 0);
  // Behind forward of the fourth: the sum of two, and the third's.
  EXPECT_EQ(of(phase(live, "forward"), MemoryClass::gradients),
            2 * of(phase(live, "forward"), MemoryClass::optimizer) / 3);
  EXPECT_EQ(live.micro_batch, 4);
}

// Windows as the schedule has them: issued, and read later.
TEST(LiveMemory, OfWindowsFollowsTheSchedule) {
  const TrainConfig config = config_with({"zero_optimization.stage=3", "model.layers=3",
                                          "zero_optimization.stage3_param_persistence_threshold=0"},
                                         2);
  const LiveMemory live = plan_live(config, 0, 2, BackendKind::local);
  const auto device = plan_device(config);
  const auto nobody = planning::communicator(0, 2, BackendKind::local, device.get());
  Mesh mesh(*nobody, config.mesh);
  TrainingState state(config, mesh, *device);
  const Schedule& schedule = state.engine().schedule();
  const auto head =
      std::ranges::find_if(schedule.steps,
                           [](const ScheduleStep& step) { return step.use.phase == Phase::both; }) -
      schedule.steps.begin();
  const auto alive_before = [&](std::int64_t step) {
    std::int64_t bytes = 0;
    for (const Window& window : schedule.windows)
      bytes += window.issue < step && step <= window.last ? window.bytes : 0;
    return bytes;
  };
  EXPECT_GT(alive_before(head), 0);
  EXPECT_EQ(of(phase(live, "before"), MemoryClass::gathered), alive_before(0));
  EXPECT_EQ(of(phase(live, "forward"), MemoryClass::gathered), alive_before(head));
  EXPECT_EQ(of(phase(live, "loss"), MemoryClass::gathered), alive_before(head + 1));
  EXPECT_EQ(of(phase(live, "backward"), MemoryClass::gathered), 0);
}

TEST(LiveMemory, IsTheSameInTextAndJson) {
  const Plan plan = make_plan(config_with({"zero_optimization.stage=3"}, 2), BackendKind::local);
  const nlohmann::json json = plan.json()["live"];
  const std::string text = plan.text(LiveMemory::Labels::all);
  for (std::size_t i = 0; i < plan.live.phases.size(); ++i) {
    EXPECT_EQ(json["phases"][i]["phase"], plan.live.phases[i].name);
    EXPECT_EQ(json["phases"][i]["sum"], plan.live.phases[i].sum());
  }
  std::int64_t tensors = 0;
  for (const nlohmann::json& tensor : json["peak"]["tensors"]) {
    tensors += tensor["bytes"].get<std::int64_t>();
    EXPECT_THAT(text, HasSubstr(tensor["tensor"].get<std::string>()));
  }
  EXPECT_EQ(tensors, json["peak"]["sum"]);
  EXPECT_THAT(text, HasSubstr(json["peak"]["moment"].get<std::string>()));
  std::string row = fmt::format("  {:<13}", "optimizer");
  for (const nlohmann::json& each : json["phases"])
    row += fmt::format(" {:>12}", bytes_text(each["bytes"]["optimizer"].get<double>()));
  for (const char* column : {"peak", "allocated"}) {
    const nlohmann::json& bytes =
        std::string(column) == "peak" ? json["peak"]["bytes"] : json["allocated"];
    row += fmt::format(" {:>12}", bytes_text(bytes["optimizer"].get<double>()));
  }
  EXPECT_THAT(text, HasSubstr(row + "\n"));
}

// launch/quickstart.sh's configuration, whose `step` column the document leaves out. Scratch, which
// is live at the peak, is of as many bytes as the processor's kernels take.
TEST(LiveMemory, IsWhatTheDocumentShows) {
  const LiveMemory live =
      live_with({"model.layers=4", "model.width=192", "model.heads=6", "model.context=256",
                 "data.sequence_length=256", "zero_optimization.stage=3", "bf16.enabled=true",
                 "gradient_clipping=1.0", "optimizer.type=AdamW"},
                8);
  const std::string document = file_bytes(ZERO_DOCS "/live_memory.md");
  for (const MemoryClass c : {MemoryClass::gathered, MemoryClass::gradients, MemoryClass::optimizer,
                              MemoryClass::activations}) {
    std::string row = fmt::format("      {:<13}", name_of(c));
    const auto column = [&](std::int64_t bytes) {
      row += fmt::format(" {:>12}", bytes_text(static_cast<double>(bytes)));
    };
    for (const char* name : {"before", "forward", "loss", "backward"})
      column(of(phase(live, name), c));
    if (c != MemoryClass::activations) {
      column(of(live.peak, c));
      column(at(live.allocated, c));
      row += "\n";
    }
    EXPECT_THAT(document, HasSubstr(row));
  }
  std::istringstream lines(live.text(LiveMemory::Labels::largest));
  int shown = 0;
  for (std::string line; std::getline(lines, line);) {
    const bool title = line.starts_with("live at the peak");
    if (!title && (shown == 0 || shown == 4)) continue;
    EXPECT_THAT(document, HasSubstr("    " + line + "\n"));
    ++shown;
  }
  EXPECT_EQ(shown, 4);  // the peak, and its three largest
}

// What the arena of activations takes, the least that it could, and what is alive then.
TEST(LiveMemory, SaysWhatTheArenaReachesOfTheLeastPossible) {
  for (const auto& [overrides, world] : choices()) {
    const LiveMemory live = live_with(overrides, world);
    const LiveMemory::Arena& arena = live.arena;
    std::int64_t alive = 0;
    for (const LiveMemory::Tensor& tensor : arena.alive) alive += tensor.bytes;
    EXPECT_EQ(alive, arena.least) << overrides.front();
    EXPECT_LE(arena.least, arena.bytes);
    EXPECT_LE(arena.bytes, at(live.allocated, MemoryClass::activations));
    EXPECT_TRUE(std::ranges::is_sorted(arena.alive, std::greater(), &LiveMemory::Tensor::bytes));
    EXPECT_EQ(live.json()["arena"]["bytes"], arena.bytes);
    EXPECT_EQ(live.json()["arena"]["alive"].size(), arena.alive.size());
    EXPECT_THAT(live.text(LiveMemory::Labels::largest),
                HasSubstr(fmt::format("\nactivations, without scratch: reached {}, least possible "
                                      "{}, where these are alive at once\n",
                                      size_text(arena.bytes), size_text(arena.least))));
    EXPECT_THAT(live.text(LiveMemory::Labels::all), HasSubstr(arena.alive.back().what + "\n"));
  }
}

TEST(LiveMemory, NamesTheLargestTensorsAloneUnlessAllAreAskedFor) {
  const LiveMemory live = live_with({"zero_optimization.stage=1"}, 2);
  const std::string few = live.text(LiveMemory::Labels::largest);
  const std::string all = live.text(LiveMemory::Labels::all);
  EXPECT_THAT(few, HasSubstr("smaller ones; --labels names them"));
  EXPECT_THAT(all, ::testing::Not(HasSubstr("--labels")));
  EXPECT_THAT(all, HasSubstr("hidden of block 0 to block 1 (2 x "));
  EXPECT_THAT(all, HasSubstr("middle_statistics"));
}

// Nothing is allocated by a step, so the ledger's peak is the sum of what its labels hold now.
TEST(LiveMemory, IsOfALedgerWhosePeakIsTheSumOfItsLabels) {
  for (const auto& [overrides, world] : choices()) {
    TrainConfig config = config_with(overrides, world);
    config.checkpoints = {};
    const auto device = plan_device(config);
    const auto nobody = planning::communicator(0, world, BackendKind::local, device.get());
    Mesh mesh(*nobody, config.mesh);
    static_cast<void>(live_memory(config, mesh, *device));  // and its buffers are gone
    EXPECT_TRUE(device->ledger().snapshot().labels.empty());
    const BytesByClass peak = device->ledger().snapshot().peak;
    const TrainingState state(config, mesh, *device);
    const MemorySnapshot memory = device->ledger().snapshot();
    BytesByClass labels{};
    for (const MemoryClass c : all_memory_classes()) {
      for (const auto& [label, bytes] : memory.labels) {
        if (label.starts_with(std::string(name_of(c)) + "/")) at(labels, c) += bytes;
      }
    }
    EXPECT_EQ(labels, memory.current);
    EXPECT_EQ(labels, memory.peak) << overrides.front();
    EXPECT_EQ(peak, memory.peak) << overrides.front();
  }
}

}  // namespace
}  // namespace zero::testing
