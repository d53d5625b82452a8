// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <set>

#include "base/sign_of_life.h"
#include "collectives/backends.h"
#include "launch/telemetry/instruments.h"
#include "launch/train/run_device.h"
#include "tests/cuda/emulator/emulator.h"
#include "tests/launch/tiny_run.h"
#include "tests/launch/train_rank.h"

// Profile and trace of runs on the emulated GPU.
namespace zero::testing {
namespace {

using Json = nlohmann::json;

/// What a run has written, and the first rank's profile.
struct Profiled {
  Json last;  // line of the log
  std::map<std::string, ProfileEntry> work;
  double step_seconds = 0;
};

std::map<std::string, ProfileEntry> by_name(const Profile& profile) {
  std::map<std::string, ProfileEntry> named;
  for (const ProfileEntry& entry : profile.entries()) named[entry.name] = entry;
  return named;
}

Profiled train_profiled(const TinyRun& run, int world, std::vector<std::string> overrides) {
  for (const char* each :
       {"model.width=16", "model.layers=1", "run.steps=2", "train_batch_size=4"}) {
    overrides.insert(overrides.begin(), each);
  }
  Profiled outcome;
  local::run(world, [&](Communicator& ranks) {
    const TrainConfig config =
        make_train_config(Configuration::read(run.config(), overrides), world);
    Instruments instruments({.profile = true,
                             .trace = !config.run.trace.empty(),
                             .trace_from = 2,
                             .trace_events = config.run.trace_events});
    const bool observed = config.run.device == DeviceKind::cpu || config.run.profile;
    RunDevice device(config, ranks, observed ? &instruments : nullptr);
    std::optional<Listening> listening;
    if (observed) listening.emplace(device.world(), instruments);
    train_rank(config, device.world(), device.device(), observed ? &instruments : nullptr);
    if (ranks.rank() != 0) return;
    outcome.work = by_name(instruments.profile());
    const auto profile = instruments.profile().json({.products = 1, .memory = 1});
    outcome.step_seconds = profile["seconds"].get<double>();
  });
  outcome.last = run.log().back();
  return outcome;
}

Profiled on_gpu(const TinyRun& run, std::vector<std::string> overrides, int world = 2) {
  cuda::emulated::reset({});
  overrides.emplace_back("run.device=cuda");
  Profiled outcome = train_profiled(run, world, overrides);
  cuda::emulated::reset();
  return outcome;
}

Profiled on_cpu(const TinyRun& run, std::vector<std::string> overrides) {
  overrides.emplace_back("run.device=cpu");
  return train_profiled(run, 2, overrides);
}

double flop_of(const Profiled& outcome) {
  double flop = 0;
  for (const auto& [name, entry] : outcome.work) flop += entry.flop;
  return flop;
}

void expect_the_step_to_hold(const Profiled& outcome) {
  double seconds = 0;
  for (const auto& [name, entry] : outcome.work) {
    EXPECT_GT(entry.seconds, 0) << name;
    seconds += entry.seconds;
  }
  EXPECT_LE(seconds, outcome.step_seconds * (1 + 1e-6));
}

TEST(EmulatedProfile, HasTheCpusOperationsFlopAndBytes) {
  const TinyRun run;
  std::vector<std::string> options{"model.family=llama", "model.intermediate=48",
                                   "activation_checkpointing.keep_outputs=true"};
  const Profiled cpu = on_cpu(run, options);
  options.emplace_back("run.profile=true");
  const Profiled gpu = on_gpu(run, options);
  int operations = 0;
  for (const auto& [name, expected] : cpu.work) {
    if (expected.bytes == 0) continue;  // the engine's
    ASSERT_TRUE(gpu.work.contains(name)) << name;
    const ProfileEntry& entry = gpu.work.at(name);
    EXPECT_EQ(entry.calls, expected.calls) << name;
    EXPECT_EQ(entry.flop, expected.flop) << name;
    EXPECT_EQ(entry.bytes, expected.bytes) << name;
    ++operations;
  }
  EXPECT_GT(operations, 15);
  EXPECT_EQ(gpu.work.at("AdamW").calls, cpu.work.at("AdamW").calls);
  expect_the_step_to_hold(cpu);
  expect_the_step_to_hold(gpu);
  const Json& profile = gpu.last["profile"];
  EXPECT_EQ(profile["steps"], 1);
  EXPECT_GT(profile["product_flop_per_second"], 0.0);
  EXPECT_GT(profile["memory_bytes_per_second"], 0.0);
  EXPECT_EQ(profile["work"].size(), gpu.work.size());
  EXPECT_EQ(profile["collectives"].size(), 3U) << profile["collectives"];
}

TEST(EmulatedProfile, HearsJoinedOperationsAsOneAndChangesNoBit) {
  const TinyRun run;
  const std::string file = run.folder().path("trace.json");
  std::vector<std::string> options{"zero_optimization.stage=1", "bf16.enabled=true"};
  const Profiled cpu = on_cpu(run, options);
  const Profiled plain = on_gpu(run, options);
  options.insert(options.end(), {"run.profile=true", "run.trace=" + file});
  const Profiled gpu = on_gpu(run, options);
  EXPECT_EQ(gpu.last["state_hash"], plain.last["state_hash"]);
  EXPECT_EQ(gpu.last["plan_exact"], true);
  EXPECT_EQ(flop_of(gpu), flop_of(cpu));
  const auto calls = [](const Profiled& of, const char* name) {
    return of.work.contains(name) ? of.work.at(name).calls : 0;
  };
  EXPECT_EQ(calls(gpu, "linear_gelu_forward 16x64"), calls(cpu, "gelu_forward"));
  EXPECT_EQ(calls(gpu, "gelu_backward"), calls(cpu, "gelu_backward"));
  EXPECT_EQ(calls(gpu, "gelu_forward"), 0);
  expect_the_step_to_hold(gpu);
}

// Alone, a rank reduces on its compute stream, which is then the observed one.
TEST(EmulatedProfile, OfOneRankChangesNoBitEither) {
  const TinyRun run;
  const std::string file = run.folder().path("trace.json");
  for (const char* stage : {"0", "3"}) {
    std::vector<std::string> options{std::string("zero_optimization.stage=") + stage,
                                     "bf16.enabled=true", "gradient_clipping=0.5"};
    const Profiled plain = on_gpu(run, options, 1);
    const auto norm = [&] { return run.log().front()["grad_norm"]; };
    const Json expected = norm();
    options.insert(options.end(), {"run.profile=true", "run.trace=" + file});
    const Profiled gpu = on_gpu(run, options, 1);
    EXPECT_EQ(gpu.last["state_hash"], plain.last["state_hash"]);
    EXPECT_EQ(gpu.last["plan_exact"], true);
    EXPECT_EQ(norm(), expected);
    EXPECT_TRUE(gpu.work.contains("tree_reduce"));
    expect_the_step_to_hold(gpu);
  }
}

/// The events of a rank's thread of the trace, in order of their begin.
std::vector<Json> events_of(const Json& trace, int rank, int thread) {
  std::vector<Json> events;
  for (const Json& event : trace["traceEvents"]) {
    if (event["ph"] == "X" && event["pid"] == rank && event["tid"] == thread) {
      events.push_back(event);
    }
  }
  std::ranges::stable_sort(events, {}, [](const Json& event) { return event["ts"].get<double>(); });
  return events;
}

double begin_of(const Json& event) { return event["ts"]; }
double end_of(const Json& event) { return begin_of(event) + event["dur"].get<double>(); }

TEST(EmulatedTrace, HoldsAllStreamsOfAllRanksOnOneClock) {
  constexpr double kGrain = 0.01;  // microseconds: times are written in nanoseconds
  enum Thread { steps, units, compute, communication };
  const TinyRun run;
  on_gpu(run, {"run.profile=true", "run.trace=" + run.folder().path("trace.json")});
  const Json trace = Json::parse(run.folder().read("trace.json"));
  const double error = trace["otherData"]["device_clock_error_us"];
  EXPECT_GT(error, 0);
  for (const int rank : {0, 1}) {
    const auto step = events_of(trace, rank, steps);
    ASSERT_EQ(step.size(), 1U);
    EXPECT_EQ(step[0]["name"], "step 2");
    for (const Thread thread : {units, compute, communication}) {
      const auto events = events_of(trace, rank, thread);
      EXPECT_GT(events.size(), 5U);
      for (std::size_t i = 1; i < events.size(); ++i) {
        EXPECT_GE(begin_of(events[i]), end_of(events[i - 1]) - kGrain) << events[i];
      }
      if (thread == communication) continue;  // gathers for the next step may end behind it
      EXPECT_GE(begin_of(events.front()), begin_of(step[0]) - kGrain);
      EXPECT_LE(end_of(events.back()), end_of(step[0]) + kGrain);
    }
  }
  // No rank has done with a collective before all have come to it.
  const auto first = events_of(trace, 0, communication);
  const auto second = events_of(trace, 1, communication);
  ASSERT_EQ(first.size(), second.size());
  for (std::size_t i = 0; i < first.size(); ++i) {
    EXPECT_EQ(first[i]["name"], second[i]["name"]);
    EXPECT_GE(end_of(first[i]), begin_of(second[i]) - 2 * error) << first[i];
    EXPECT_GE(end_of(second[i]), begin_of(first[i]) - 2 * error) << second[i];
  }
}

TEST(EmulatedProfile, TakesItsLimitsFromTheDeviceAndItsRoom) {
  cuda::emulated::reset({});
  {
    const auto device = cuda::open();
    const BytesByClass before = device->ledger().snapshot().current;
    for (const DType dtype : {DType::bf16, DType::fp32}) {
      const std::int64_t signs = signs_of_life();
      const MachineLimits limits = measure_limits(dtype, *device);
      EXPECT_GE(signs_of_life() - signs, 2) << "other ranks wait for both measurements";
      EXPECT_GT(limits.products, 0);
      EXPECT_GT(limits.memory, 0);
    }
    EXPECT_EQ(device->ledger().snapshot().current, before);
  }
  cuda::emulated::reset({.memory = 4 << 20});
  {
    const auto device = cuda::open();  // with 2 MiB for the kernels' scratch
    const Buffer all = device->allocate(1 << 19, DType::fp32, MemoryClass::optimizer, "all");
    const MachineLimits limits = measure_limits(DType::fp32, *device);
    EXPECT_EQ(limits.products, 0);
    EXPECT_EQ(limits.memory, 0);
    EXPECT_EQ(ProfileEntry({.name = "copy", .calls = 1, .seconds = 1, .bytes = 1}).share(limits),
              0);
  }
  cuda::emulated::reset();
}

}  // namespace
}  // namespace zero::testing
