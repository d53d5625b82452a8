// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#include "launch/memory/run_memory.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <atomic>
#include <filesystem>
#include <set>

#include "collectives/backends.h"
#include "launch/memory/log_watch.h"
#include "launch/memory/machine_memory.h"
#include "launch/memory/memory_report.h"
#include "launch/train/run_observers.h"
#include "launch/train/trainer.h"
#include "tests/errors.h"
#include "tests/launch/config_with.h"
#include "tests/launch/tiny_run.h"
#include "tests/launch/train_rank.h"

namespace zero::testing {
namespace {

using ::testing::AllOf;
using ::testing::ContainsRegex;
using ::testing::HasSubstr;
using ::testing::Not;
using Json = nlohmann::json;

/// Charges a kibibyte to the optimizer of a block with each update of the optimizer, and never
/// releases it.
class Leak final : public StreamListener {
 public:
  explicit Leak(Device& device) : device_(device) {}
  bool listens() const noexcept override { return true; }
  void ran(std::string_view what, Mark, Mark) noexcept override {
    if (what != "AdamW") return;
    device_.ledger().charge(MemoryClass::optimizer, "h.1.moment", 1024);
  }
  void waited(std::string_view, Mark, Mark) noexcept override {}

 private:
  Device& device_;
};

/// Runs on `world` ranks, of which the last leaks if `leaks`. Returns the first rank's status.
int run_observed(const TinyRun& run, int world, const std::vector<std::string>& overrides,
                 bool leaks) {
  std::atomic<int> status = -1;
  local::run(world, [&](Communicator& communicator) {
    const int rank = communicator.rank();
    const TrainConfig config =
        make_train_config(Configuration::read(run.config(), overrides), world);
    const RunObservers observers(config, rank);
    const auto device = cpu::open();
    Leak leak(*device);
    if (leaks && rank == world - 1) device->compute().listen(&leak);
    const Batches batches(config, rank);
    Console console(stdout, Console::Mode::silent);
    const auto log = rank == 0 ? std::make_unique<RunLog>(config.run.log) : nullptr;
    Mesh mesh(communicator, config.mesh);
    const int own = Trainer({.config = config,
                             .batches = batches,
                             .mesh = mesh,
                             .device = *device,
                             .console = console,
                             .log = log.get(),
                             .instruments = observers.instruments(),
                             .memory_trace = observers.memory_trace()})
                        .run();
    if (rank == 0) status = own;
  });
  return status;
}

std::int64_t sum_of_classes(const Json& memory, const char* figure) {
  std::int64_t sum = 0;
  for (const MemoryClass c : all_memory_classes()) {
    const std::string name(name_of(c));
    if (memory.contains(name)) sum += memory[name][figure].get<std::int64_t>();
  }
  return sum;
}

TEST(RunMemory, StandsInEveryLineOfTheLog) {
  const TinyRun run;
  EXPECT_EQ(run_observed(run, 2, {}, false), 0);
  const auto log = run.log();
  ASSERT_EQ(log.size(), 4U);
  for (std::size_t i = 0; i < 3; ++i) {
    const Json& memory = log[i]["memory"];
    EXPECT_EQ(memory["total"], sum_of_classes(memory, "now"));
    EXPECT_GE(memory["peak"], memory["total"]);
    EXPECT_LE(memory["peak"], sum_of_classes(memory, "peak"));
    EXPECT_GE(memory["reserved"], memory["total"]);
    EXPECT_GT(memory["free"], 0);
    EXPECT_EQ(memory["optimizer"]["now"], log[3]["memory"]["optimizer"]["planned"]);
  }
  EXPECT_EQ(log[2]["memory"]["total"], log[1]["memory"]["total"]);
  EXPECT_EQ(log[3]["plan_exact"], true);
}

TEST(RunMemory, ALeakIsNamedFromTheRunsTrace) {
  const TinyRun run;
  const std::string path = run.folder().path("m");
  EXPECT_EQ(run_observed(run, 1, {"run.steps=20", "run.memory_trace=" + path}, true), 0);
  const auto leaks = memory_report::leaks(read_memory(path), 1024);
  EXPECT_TRUE(leaks.found);
  EXPECT_THAT(leaks.text, HasSubstr("optimizer h.1.moment (unit h.1)"));
  const MemorySeries series = read_memory(path);
  const auto at_end = end_of(series).classes;
  EXPECT_GT(at_end[static_cast<std::size_t>(MemoryClass::parameters)], 0);
  EXPECT_TRUE(series.whole);
  std::set<std::string> phases;
  for (const auto& place : series.places) phases.insert(place.phase);
  for (const char* phase : {"setup", "forward", "backward", "update", "between steps", "end"}) {
    EXPECT_TRUE(phases.contains(phase)) << phase;
  }
  // A log knows the class.
  const auto classes = memory_report::leaks(read_memory(run.folder().path("run.log")), 1024);
  EXPECT_TRUE(classes.found);
  EXPECT_THAT(classes.text, HasSubstr("optimizer"));
}

TEST(RunMemory, ATraceChangesNothingAndEveryRankHasItsOwn) {
  const TinyRun run;
  const std::string path = run.folder().path("m");
  run_observed(run, 2, {}, false);
  const Json expected = run.log().back();
  run_observed(run, 2, {"run.memory_trace=" + path, "run.trace=" + run.folder().path("t")}, false);
  const Json traced = run.log().back();
  EXPECT_EQ(traced["state_hash"], expected["state_hash"]);
  EXPECT_EQ(traced["plan_exact"], true);
  for (const int rank : {0, 1}) {
    const MemorySeries series = read_memory(memory_trace_file(path, rank));
    EXPECT_EQ(series.rank, rank);
    EXPECT_EQ(series.ranks, 2);
    EXPECT_FALSE(memory_report::leaks(series, 1).found);
  }
  std::set<std::string> counters;
  const Json document = Json::parse(run.folder().read("t"));
  for (const Json& event : document["traceEvents"]) {
    if (event["ph"] != "C") continue;
    EXPECT_EQ(event["name"], "memory");
    for (const auto& [name, bytes] : event["args"].items()) counters.insert(name);
  }
  EXPECT_TRUE(counters.contains("optimizer"));
  EXPECT_TRUE(counters.contains("activations"));
}

TEST(RunMemory, GrowthWarnsAndTheRunGoesOn) {
  const TinyRun run;
  EXPECT_EQ(run_observed(run, 1, {"run.steps=12", "run.memory_growth=4KiB"}, true), 0);
  std::vector<std::string> warnings;
  std::int64_t steps = 0;
  for (const Json& line : run.log()) {
    steps += line.contains("step") ? 1 : 0;
    if (line.contains("memory_growth")) warnings.push_back(line["memory_growth"]);
  }
  EXPECT_EQ(steps, 12);
  ASSERT_GE(warnings.size(), 1U);
  EXPECT_THAT(warnings.front(),
              AllOf(HasSubstr("since step 2"), HasSubstr("run.memory_growth is 4.00 KiB"),
                    HasSubstr("most of it optimizer h.1.moment (unit h.1), +")));
}

TEST(RunMemory, GrowthOfAnyRankStopsAllWithACheckpoint) {
  const TinyRun run;
  const std::vector<std::string> stop{"run.steps=40", "run.memory_growth=4KiB",
                                      "run.memory_growth_action=stop"};
  EXPECT_EQ(run_observed(run, 2, stop, true), 1);
  Json last = run.log().back();
  EXPECT_EQ(last["ended_by"], "run.memory_growth");
  EXPECT_EQ(last["after_step"], 10);  // the first at which ranks ask each other
  std::vector<std::string> saving = stop;
  const std::string folder = run.folder().path("checkpoints");
  saving.push_back("run.checkpoint.folder=" + folder);
  EXPECT_EQ(run_observed(run, 2, saving, true), 1);
  last = run.log().back();
  EXPECT_EQ(last["ended_by"], "run.memory_growth");
  EXPECT_EQ(last["after_step"], 11);
  EXPECT_TRUE(std::filesystem::exists(folder + "/step_00000011"));
}

TEST(RunMemory, WithoutGrowthNothingIsSaid) {
  const TinyRun run;
  EXPECT_EQ(run_observed(run, 2,
                         {"run.steps=12", "run.validation_every=5", "run.memory_growth=1",
                          "run.memory_growth_action=stop"},
                         false),
            0);
  EXPECT_EQ(run.log().back()["final"], true);
  for (const Json& line : run.log()) EXPECT_FALSE(line.contains("memory_growth"));
}

TEST(MemoryKeys, AreCheckedTogether) {
  EXPECT_EQ(config_with({"run.memory_growth=16MiB"}).run.memory_growth, std::int64_t{16} << 20);
  EXPECT_EQ(config_with({}).run.memory_trace_bytes, std::int64_t{64} << 20);
  EXPECT_THAT(error_of([] { config_with({"run.memory_growth_action=stop"}); }),
              HasSubstr("run.memory_growth is not: give the bytes"));
  EXPECT_THAT(error_of([] { config_with({"run.memory_trace_bytes=1MiB"}); }),
              HasSubstr("run.memory_trace is not: give the file"));
  EXPECT_THAT(error_of([] {
                config_with({"run.memory_trace=m", "run.memory_trace_bytes=1KiB"});
              }),
              HasSubstr("run.memory_trace_bytes is 1024, expected at least 65536 (64KiB)"));
  EXPECT_THAT(error_of([] { config_with({"run.memory_grwth=1MiB"}); }),
              HasSubstr("run.memory_growth"));
  EXPECT_THAT(error_of([] { config_with({"run.memory_growth=\"4 cows\""}); }),
              HasSubstr("run.memory_growth"));
}

TEST(LogWatches, FollowALogFromLineToLine) {
  const Scratch folder;
  const auto step = [](int number, int total) {
    return fmt::format(
        "{{\"step\":{},\"step_seconds\":1,\"memory\":{{\"parameters\":{{\"now\":{},"
        "\"peak\":{}}},\"total\":{},\"peak\":{},\"reserved\":{},\"free\":99}}}}\n",
        number, total, total, total, total, total);
  };
  const std::string first = step(1, 1024) + step(2, 2048);
  folder.write("log", first + "{\"step\":3");
  LogWatch watch(folder.path("log"));
  LogWatch::News news = watch.next();
  ASSERT_EQ(news.lines.size(), 2U);
  EXPECT_THAT(news.lines[1], AllOf(HasSubstr("step 2  2.00 KiB (peak 2.00 KiB)"),
                                   HasSubstr("parameters 2.00 KiB"), Not(HasSubstr("grown"))));
  EXPECT_EQ(watch.next().lines.size(), 0U);
  folder.write("log", first + step(3, 3072) + "{\"final\":true}\n");
  news = watch.next();
  ASSERT_EQ(news.lines.size(), 1U);
  EXPECT_THAT(news.lines[0], HasSubstr("grown by 1.00 KiB"));
  EXPECT_TRUE(news.over);
  folder.write("log", step(1, 512));  // another run's
  EXPECT_EQ(watch.next().lines.size(), 1U);
  folder.write("log", step(1, 512) + "{\"step\":2,\"step_seconds\":1}\n");
  EXPECT_THAT(error_of([&] { watch.next(); }), HasSubstr("log:2: memory: is missing"));
  EXPECT_THAT(error_of([&] { read_memory(folder.path("log")); }),
              HasSubstr("log:2: memory: is missing"));
}

TEST(LogWatches, SayThatATraceIsNoLog) {
  const Scratch folder;
  folder.write("m", "{\"memory_trace\":1,\"run\":1,\"part\":0}\n{\"t\":0,\"step\":1}\n");
  LogWatch watch(folder.path("m"));
  EXPECT_EQ(error_of([&] { watch.next(); }),
            folder.path("m") + ": is a trace of memory, not a log; zero_memory report reads it");
}

TEST(MachineMemories, ListZeroProgramsOfThisUser) {
  const Scratch folder;
  namespace fs = std::filesystem;
  std::string environment("A=1\0OMPI_COMM_WORLD_RANK=3\0", 27);
  const auto process = [&](const std::string& id, const std::string& name, unsigned user) {
    fs::create_directories(folder.path("proc/" + id));
    folder.write("proc/" + id + "/comm", name + "\n");
    folder.write("proc/" + id + "/status",
                 fmt::format("Name:\t{}\nUid:\t{}\t0\t0\t0\nVmRSS:\t   2048 kB\n", name, user));
    folder.write("proc/" + id + "/environ", environment);
    folder.write("proc/" + id + "/smaps_rollup", "head\nPss:  1024 kB\nPss_Anon: 7 kB\n");
  };
  process("40", "zero_train", ::getuid());
  process("41", "zero_train", ::getuid() + 1);
  process("42", "bash", ::getuid());
  environment = std::string("MV2_COMM_WORLD_RANK=5\0SLURM_PROCID=0\0", 37);
  process("43", "zero_train", ::getuid());
  auto found = zero_processes(folder.path());
  ASSERT_EQ(found.size(), 2U);
  EXPECT_EQ(found[1].rank, 5) << "of the launcher within the step of Slurm";
  found.pop_back();
  EXPECT_EQ(found[0].id, 40);
  EXPECT_EQ(found[0].rank, 3);
  EXPECT_EQ(found[0].resident, 2048 * 1024);
  EXPECT_EQ(found[0].proportional, 1024 * 1024);
  const std::string text = machine_text({.host = "here",
                                         .memory = {.total = 1 << 30, .free = 1 << 29},
                                         .nvidia = {.gpus = {{.index = 0,
                                                              .name = "GPU name",
                                                              .uuid = "GPU-1",
                                                              .total = std::int64_t{80} << 30,
                                                              .free = std::int64_t{50} << 30,
                                                              .processes = {{40, 1 << 30}}}}},
                                         .processes = found});
  EXPECT_THAT(text, ContainsRegex("^ +total +free +of zero_  name\n"));
  EXPECT_THAT(text, ContainsRegex("host +1.00 GiB +512.00 MiB +1.00 MiB  here"));
  EXPECT_THAT(text, ContainsRegex("GPU 0 +80.00 GiB +50.00 GiB +1.00 GiB  GPU name, GPU-1"));
  EXPECT_THAT(text, ContainsRegex("40 zero_train +3 +2.00 MiB +1.00 MiB +1.00 GiB"));
  EXPECT_TRUE(nvidia_memory("libnothing_of_this_name.so").gpus.empty());
}

TEST(NvidiaMemories, ComeFromTheDriversLibrary) {
  const NvidiaMemory nvidia = nvidia_memory(ZERO_FAKE_NVML);
  EXPECT_EQ(nvidia.problem, "");
  ASSERT_EQ(nvidia.gpus.size(), 5U);  // the second is not to be seen, the fourth has two parts
  const GpuMemory& gpu = nvidia.gpus[0];
  EXPECT_EQ(gpu.name, "Fake GPU");
  EXPECT_EQ(gpu.uuid, "GPU-fake");
  EXPECT_EQ(gpu.total, 1000);
  EXPECT_EQ(gpu.free, 600);
  ASSERT_EQ(gpu.processes.size(), 40U);
  EXPECT_EQ(gpu.processes.at(137), 37);
  EXPECT_EQ(gpu.processes.at(139), 0);  // not known
  EXPECT_EQ(gpu.label(), "GPU 0");
  EXPECT_EQ(nvidia.gpus[1].label(), "GPU 2");
  EXPECT_EQ(nvidia.gpus[1].problem, "Not Supported");
  for (const std::size_t i : {std::size_t{2}, std::size_t{3}}) {
    EXPECT_EQ(nvidia.gpus[i].label(), i == 2 ? "GPU 3.0" : "GPU 3.2");
    EXPECT_EQ(nvidia.gpus[i].uuid, "MIG-fake");
    EXPECT_EQ(nvidia.gpus[i].free, 90);
  }
  const std::string text = machine_text({.host = "here", .nvidia = nvidia});
  EXPECT_THAT(text, ContainsRegex("GPU 2 +- +- +-  Fake GPU, GPU-fake; not told: Not Supported"));
  EXPECT_THAT(text, ContainsRegex("GPU 3.2 +100 B +90 B +-  Fake GPU MIG 1g.5gb, MIG-fake"));
  EXPECT_THAT(text, ContainsRegex("GPU 4 +- +- +-  ., .; not told: GPU is lost"));
  EXPECT_THAT(nvidia_memory("libc.so.6").problem, HasSubstr("has no nvmlInit_v2"));
}

}  // namespace
}  // namespace zero::testing
