// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#include "launch/telemetry/instruments.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <set>
#include <thread>

#include "collectives/backends.h"
#include "engine/waits.h"
#include "launch/telemetry/profile.h"
#include "launch/train/trainer.h"
#include "tests/device/calls_to_disk.h"
#include "tests/errors.h"
#include "tests/launch/tiny_run.h"
#include "tests/launch/train_rank.h"
#include "tests/scratch.h"

namespace zero::testing {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;
using Json = nlohmann::json;
using Time = TraceTrack::Time;

Time at(std::int64_t microseconds) { return Time(std::chrono::microseconds(microseconds)); }

TEST(Profiles, EntriesStandByTimeWithTheNearerLimit) {
  Profile profile;
  profile.add("product", 0.5, 1e9, 1e6);
  profile.add("product", 0.5, 1e9, 1e6);
  profile.add("copy", 2.0, 0, 1e9);
  profile.add("waiting", 0.1, 0, 0);
  profile.add_bytes("never called", 1e9);
  profile.add_step(2.0);
  profile.add_step(2.0);
  const MachineLimits limits{.products = 4e9, .memory = 1e9};
  const auto entries = profile.entries();
  ASSERT_EQ(entries.size(), 3U);
  EXPECT_EQ(entries[0].name, "copy");
  EXPECT_DOUBLE_EQ(entries[0].share(limits), 0.5);
  EXPECT_EQ(entries[1].calls, 2);
  EXPECT_DOUBLE_EQ(entries[1].least_seconds(limits), 0.5);
  EXPECT_DOUBLE_EQ(entries[1].share(limits), 0.5);
  EXPECT_EQ(entries[2].share(limits), 0.0);
  EXPECT_THAT(profile.table(limits),
              AllOf(HasSubstr("profile of 2 step(s) of 2000.0 ms; limits: products 4 GFLOP/s"),
                    HasSubstr("between them"), Not(HasSubstr("over 100 %"))));
  profile.add("product of cached operands", 0.1, 1e9, 0);
  EXPECT_THAT(profile.table(limits),
              HasSubstr("over 100 % of a limit: operands were still in caches, or other programs"));
  const Json json = profile.json(limits);
  EXPECT_EQ(json["steps"], 2);
  EXPECT_EQ(json["work"][1]["flop"], 2e9);
  EXPECT_EQ(json["work"][1]["share_of_limit"], 0.5);
}

TEST(Profiles, CollectivesAreListedPerStep) {
  Profile collectives;
  EXPECT_EQ(collectives_table(collectives, 1), "");
  collectives.add("all_gather", 0.5, 0, 1e9);
  collectives.add("all_gather", 0.5, 0, 1e9);
  EXPECT_THAT(collectives_table(collectives, 2),
              ::testing::ContainsRegex("all_gather +1 +500.00 +1000.0 +2.00"));
  EXPECT_EQ(Json(collectives_json(collectives))[0]["bytes"], 2e9);
}

TEST(Traces, ATrackKeepsTheNewestEventsInOrder) {
  TraceTrack track(3);
  for (const int i : {1, 2, 3, 4, 5}) track.add("event " + std::to_string(i), at(i), at(i + 1), i);
  const auto events = track.events();
  ASSERT_EQ(events.size(), 3U);
  EXPECT_EQ(track.name_of(events[0]), "event 3");
  EXPECT_EQ(track.name_of(events[2]), "event 5");
  EXPECT_EQ(events[0].begin, 3000);
  EXPECT_EQ(track.dropped(), 2);
}

TEST(Traces, EventsAreChromesWithTheShiftedClock) {
  RankTrace trace(1);
  trace.compute.add("first", at(1), at(2));
  trace.compute.add("a \"quoted\" name", at(10), at(14));
  trace.communication.add("all_gather(h.0)", at(5), at(6), 4096);
  const Json events = Json::parse("[0" + trace_events(trace, 3, -2000) + "]");
  ASSERT_EQ(events.size(), 1U + 5 + 2);
  EXPECT_EQ(events[1]["args"]["name"], "rank 3");
  EXPECT_EQ(events[4]["args"]["name"], "compute (first 1 events dropped)");
  const Json& product = events[5];
  EXPECT_EQ(product["ph"], "X");
  EXPECT_EQ(product["pid"], 3);
  EXPECT_EQ(product["name"], "a \"quoted\" name");
  EXPECT_EQ(product["ts"], 8.0);
  EXPECT_EQ(product["dur"], 4.0);
  EXPECT_FALSE(product.contains("args"));
  EXPECT_EQ(events[7]["args"]["bytes"], 4096);
}

TEST(Traces, AnUnwritableFileIsAnErrorOfAllRanks) {
  std::atomic<int> errors = 0;
  local::run(2, [&](Communicator& communicator) {
    const auto device = cpu::open();
    const std::string message = error_of([&] {
      write_trace(communicator, *device, RankTrace(1), "/nonexistent/trace.json", Time());
    });
    EXPECT_THAT(message, HasSubstr("run.trace: cannot write /nonexistent/trace.json"));
    ++errors;
  });
  EXPECT_EQ(errors, 2);
}

// Others wait for the first rank.
TEST(Traces, AreWrittenByCallsToTheDisk) {
  const Scratch folder;
  local::run(1, [&](Communicator& communicator) {
    const auto device = cpu::open();
    const auto write = [&] {
      write_trace(communicator, *device, RankTrace(1), folder.path("trace.json"), Time());
    };
    EXPECT_THAT(counted_calls({SYS_write}, write), ::testing::ElementsAre(SYS_write));
  });
}

TEST(StreamListeners, HearOfWorkAndOfWaits) {
  Instruments instruments({.profile = true});
  const auto device = cpu::open();
  device->compute().listen(&instruments);
  const Waits waits;
  const auto work = [&] {
    device->compute().submit("before", [] {});
    const auto wait_for = [&](Stream& stream, const auto& wait) {
      std::atomic<bool> waiting = false;
      stream.submit("slow", [&] {
        while (!waiting) std::this_thread::yield();
        std::this_thread::sleep_for(std::chrono::milliseconds(1));
      });
      const Event event = stream.record();
      waiting = true;
      wait(event);
    };
    wait_for(device->communication(), [&](const Event& event) { device->compute().wait(event); });
    wait_for(device->transfer(),
             [&](const Event& event) { device->compute().wait(event, waits.of_tiers()); });
    instruments.begin({.name = "product", .flop = 10, .bytes = 20});
    device->compute().submit("part", [] {});
    device->compute().submit("another part", [] {});
    instruments.end();
  };
  instruments.begin_step(1, device->compute());  // warms up
  work();
  instruments.end_step(1);
  EXPECT_EQ(instruments.profile().entries().size(), 0U);
  instruments.begin_step(2, device->compute());
  work();
  instruments.end_step(2);
  instruments.stop();
  device->compute().submit("after", [] {});
  std::set<std::string> names;
  for (const ProfileEntry& entry : instruments.profile().entries()) {
    names.insert(entry.name);
    EXPECT_EQ(entry.calls, 1) << entry.name;
    EXPECT_EQ(entry.flop, entry.name == "product" ? 10 : 0);
  }
  EXPECT_EQ(names, (std::set<std::string>{"before", "product", "waiting for communication",
                                          "waiting for tiers"}));
  EXPECT_EQ(instruments.profile().steps(), 1);
}

TEST(StreamListeners, AreToldWhileTheyListen) {
  struct Counter final : StreamListener {
    bool listens() const noexcept override { return open; }
    void ran(std::string_view, Mark, Mark) noexcept override { ++calls; }
    void waited(std::string_view, Mark, Mark) noexcept override { ++calls; }
    bool open = false;
    int calls = 0;
  };
  Counter counter;
  const auto device = cpu::open();
  device->compute().listen(&counter);
  for (const bool open : {false, true, false}) {
    counter.open = open;
    device->compute().submit("work", [] {});
    device->compute().submit_host("host code", [] {});
    EXPECT_EQ(counter.calls, open || counter.calls > 0 ? 2 : 0);
  }
  counter.open = true;
  device->compute().listen(nullptr);
  device->compute().submit("unheard", [] {});
  EXPECT_EQ(counter.calls, 2);
}

TEST(StreamListeners, HearNothingOfTheWorkThatTakesThemAway) {
  struct Counter final : StreamListener {
    bool listens() const noexcept override { return true; }
    void ran(std::string_view, Mark, Mark) noexcept override { ++calls; }
    void waited(std::string_view, Mark, Mark) noexcept override { ++calls; }
    int calls = 0;
  };
  const auto device = cpu::open();
  auto first = std::make_unique<Counter>();
  Counter second;
  device->compute().listen(first.get());
  device->compute().submit("replaces the listener", [&] {
    device->compute().listen(&second);
    first.reset();
  });
  EXPECT_EQ(second.calls, 0);
  device->compute().submit("work", [] {});
  EXPECT_EQ(second.calls, 1);
}

/// Trains the tiny run on `world` ranks with instruments; gives the lines of the log.
std::vector<Json> train_observed(const TinyRun& run, int world,
                                 const std::vector<std::string>& overrides) {
  local::run(world, [&](Communicator& communicator) {
    const TrainConfig config =
        make_train_config(Configuration::read(run.config(), overrides), world);
    Instruments instruments({.trace = true,
                             .trace_from = config.run.trace_from,
                             .trace_steps = config.run.trace_steps,
                             .trace_events = config.run.trace_events});
    const auto device = cpu::open();
    device->compute().listen(&instruments);
    const bool observed = !config.run.trace.empty();
    std::optional<Listening> listening;
    if (observed) listening.emplace(communicator, instruments);
    train_rank(config, communicator, *device, observed ? &instruments : nullptr);
  });
  return run.log();
}

TEST(Instruments, ATraceHoldsAllRanksStreamsAndChangesNothing) {
  const TinyRun run;
  const std::string file = run.folder().path("trace.json");
  const auto plain = train_observed(run, 2, {});
  const auto traced =
      train_observed(run, 2, {"run.trace=" + file, "run.trace_from=2", "run.trace_steps=1"});
  EXPECT_EQ(traced.back()["state_hash"], plain.back()["state_hash"]);
  EXPECT_EQ(traced.back()["plan_exact"], true);
  const Json document = Json::parse(run.folder().read("trace.json"));
  EXPECT_LT(document["otherData"]["device_clock_error_us"], 1e6);
  const Json& events = document["traceEvents"];
  for (const int rank : {0, 1}) {
    std::set<std::string> names;
    double last = 0;
    for (const Json& event : events) {
      if (event["ph"] != "X" || event["pid"] != rank) continue;
      names.insert(event["name"]);
      last = std::max(last, event["ts"].get<double>());
      EXPECT_GE(event["dur"], 0.0);
      const std::string name = event["name"];
      if (name == "all_gather(h.0)") {
        EXPECT_GT(event["args"]["bytes"], 0);
      }
    }
    EXPECT_TRUE(names.contains("step 2")) << rank;
    EXPECT_FALSE(names.contains("step 1") || names.contains("step 3")) << rank;
    for (const char* name :
         {"h.0 forward", "embedding backward", "linear_forward 32x96", "AdamW", "all_gather(h.0)",
          "reduce_scatter(h.1)", "all_reduce(gradient norm and loss)"}) {
      EXPECT_TRUE(names.contains(name)) << rank << ": " << name;
    }
    EXPECT_GT(last, 0);
  }
}

TEST(Instruments, ClocksOfOneHostAreOne) {
  local::run(3, [&](Communicator& communicator) {
    const auto device = cpu::open();
    EXPECT_EQ(clock_shifts(communicator, *device), (std::vector<std::int64_t>{0, 0, 0}));
  });
}

}  // namespace
}  // namespace zero::testing
