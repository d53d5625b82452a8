// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#include "launch/flight/flight_recorder.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <functional>
#include <latch>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <thread>
#include <utility>

#include "collectives/backends.h"
#include "collectives/host_values.h"
#include "collectives/mesh.h"
#include "tests/errors.h"
#include "tests/launch/recorded_rank.h"

namespace zero::testing {
namespace {

TEST(FlightRecorder, ShowsACollectiveThatWaitsAndItsEnd) {
  std::atomic<bool> seen{false};
  local::run(2, [&](Communicator& world) {
    Recorded rank(world);
    rank.recorder.know_group(world, "world", {0, 1});
    if (world.rank() == 1) wait_until([&] { return seen.load(); });
    world.barrier(rank.device->communication(), {"late"});
    if (world.rank() == 0) {
      wait_until([&] {
        const FlightState state = rank.reader.read();
        return state.open.size() == 1 && state.open[0].started != 0;
      });
      const FlightState::Collective call = rank.reader.read().open.at(0);
      ZERO_CHECK(call.name == "barrier(late)" && call.group == "world" && call.number == 1,
                 "found {} #{} of {}", call.name, call.number, call.group);
      ZERO_CHECK(call.started >= call.enqueued && call.ended == 0, "times of an open collective");
      seen = true;
    }
    rank.device->communication().synchronize();
    wait_until([&] { return rank.reader.read().open.empty(); });
    const FlightState::Collective last = rank.reader.read().last.at(0);
    ZERO_CHECK(last.number == 1 && last.ended >= last.started && last.started > 0,
               "a collective that has ended");
  });
}

TEST(FlightRecorder, CountsTheCollectivesOfEachGroupAlikeOnAllRanks) {
  local::run(4, [](Communicator& world) {
    Recorded rank(world);
    Mesh mesh(world, {.replicate = 1, .shard = 2, .tensor = 2});
    rank.recorder.know_mesh(mesh);
    std::vector<double> values(3, 1);
    const View view = View::of(std::span<double>(values));
    host_all_reduce(mesh.shard(), *rank.device, view, ReduceOp::sum, {"a"});
    host_all_reduce(mesh.tensor(), *rank.device, view, ReduceOp::sum, {"b"});
    host_all_reduce(mesh.shard(), *rank.device, view, ReduceOp::sum, {"c"});
    wait_until([&] { return rank.reader.read().open.empty(); });
    std::map<std::string, FlightState::Collective> last;
    for (const auto& each : rank.reader.read().last) last[each.group] = each;
    const int shard = world.rank() % 2;
    const int tensor = world.rank() / 2 * 2;
    ZERO_CHECK(last.at("shard").name == "all_reduce(c)" && last.at("shard").number == 2,
               "shard: {} #{}", last.at("shard").name, last.at("shard").number);
    ZERO_CHECK((last.at("shard").ranks == std::vector<int>{shard, shard + 2}), "ranks of a shard");
    ZERO_CHECK(last.at("tensor").number == 1 && last.at("tensor").bytes == 24, "tensor");
    ZERO_CHECK((last.at("tensor").ranks == std::vector<int>{tensor, tensor + 1}), "of a tensor");
    // Splits of the world, which the mesh made before its groups had names, block the hosts.
    ZERO_CHECK(last.at("world").name == "split" && last.at("world").number == 2, "world: {} #{}",
               last.at("world").name, last.at("world").number);
    ZERO_CHECK((last.at("world").ranks == std::vector<int>{0, 1, 2, 3}), "ranks of the world");
  });
}

TEST(FlightRecorder, TellsTheCollectivesInWhichADiskDecidesHowLongRanksWait) {
  local::run(2, [](Communicator& world) {
    Recorded rank(world);
    const auto newest = [&] {
      rank.device->communication().synchronize();
      wait_until([&] { return rank.reader.read().open.empty(); });
      return rank.reader.read().last.at(0);
    };
    for (const bool disk : {false, true, false}) {
      world.set_wait_limits({.disk_phase = disk ? "load" : ""});
      world.barrier(rank.device->communication(), {"x"});
      ZERO_CHECK(newest().disk_decides == disk && newest().name == "barrier(x)", "of a stream");
      world.split(0, world.rank());
      ZERO_CHECK(newest().disk_decides == disk && newest().name == "split", "of the host");
    }
  });
}

TEST(FlightRecorder, ShowsUnitsPhasesAndTheMeanStep) {
  RecordedFile rank;
  EXPECT_FALSE(rank.recorder.hears_operations()) << "passes may be replayed as graphs";
  rank.recorder.unit("h.3", Phase::recompute);
  EXPECT_EQ(rank.reader.read().compute, "recompute h.3");
  rank.recorder.phase(1, "forward");
  rank.recorder.phase(1, "backward");
  rank.recorder.phase(1, "forward");  // another micro-batch
  rank.recorder.phase(1, "between steps");
  EXPECT_EQ(rank.reader.read().mean_step_seconds, 0) << "the first step does not count";
  rank.recorder.phase(2, "forward");
  rank.recorder.phase(2, "validation");
  EXPECT_EQ(rank.reader.read().phase, "first validation");
  const double mean = rank.reader.read().mean_step_seconds;
  EXPECT_GT(mean, 0);
  rank.recorder.phase(2, "between steps");
  EXPECT_EQ(rank.reader.read().mean_step_seconds, mean) << "a validation is no part of a step";
  EXPECT_EQ(rank.reader.read().step, 2);
  EXPECT_EQ(rank.reader.read().phase, "between steps");
  rank.recorder.phase(3, "validation");
  EXPECT_EQ(rank.reader.read().phase, "validation");
}

// A pass that reads prompts has no usual time, nor have guesses.
TEST(FlightRecorder, TheMeanStepOfAnswersIsThatOfPassesThatDecode) {
  RecordedFile rank;
  std::int64_t step = 0;
  const auto pass = [&](const char* phase) {
    rank.recorder.phase(++step, "draft");
    rank.recorder.phase(step, phase);
    std::this_thread::sleep_for(std::chrono::milliseconds(step));
    rank.recorder.phase(step, "between steps");
    return rank.reader.read().mean_step_seconds;
  };
  for (int i = 0; i < 3; ++i) EXPECT_EQ(pass("prefill"), 0);
  EXPECT_EQ(pass("decode"), 0) << "the first one does not count";
  const double mean = pass("decode");
  EXPECT_GT(mean, 0);
  EXPECT_EQ(pass("prefill"), mean);
  EXPECT_NE(pass("decode"), mean);
}

// A limit follows from it: one short step must not make the next ones late.
TEST(FlightRecorder, OneStepMovesTheMeanALittle) {
  RecordedFile rank;
  for (const int step : {1, 2}) {
    rank.recorder.phase(step, "forward");
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
    rank.recorder.phase(step, "between steps");
  }
  const double mean = rank.reader.read().mean_step_seconds;
  rank.recorder.phase(3, "forward");
  rank.recorder.phase(3, "between steps");
  EXPECT_NE(rank.reader.read().mean_step_seconds, mean);
  EXPECT_GT(rank.reader.read().mean_step_seconds, 0.8 * mean);
}

/// A point on a clock that the test sets.
class SetMark final : public Mark::State {
 public:
  std::optional<double> seconds_since(const State& earlier) const override {
    const auto& other = dynamic_cast<const SetMark&>(earlier);
    if (asked) asked();
    if (broken) throw Error("the device has failed");
    if (!at || !other.at) return std::nullopt;
    return *at - *other.at;
  }
  std::optional<double> at{};
  bool broken = false;
  std::function<void()> asked{};
};

/// A stream whose work the test lets run: only marks matter.
class Enqueuing final : public Stream {
 public:
  bool enqueues() const override { return true; }
  Event record() override { return {}; }
  Mark mark() override {
    marks.push_back(std::make_shared<SetMark>());
    return Mark(marks.back());
  }
  void synchronize() override {}
  double waited_seconds() const override { return 0; }

  std::vector<std::shared_ptr<SetMark>> marks{};

 private:
  void do_submit(std::string_view, Work) override { ADD_FAILURE() << "no work was expected"; }
  void do_wait(const Event&) override {}
};

/// A rank whose collectives, told to its recorder alone, are on such a stream.
struct EnqueuingRank : RecordedFile {
  void submit(const char* purpose) {
    const CollectiveRecord record{.operation = Operation::all_gather, .purpose = purpose};
    recorder.submitting(record, *group->implementation(), stream);
    const Mark begin = stream.mark();
    recorder.collective(record, begin, stream.mark());
  }

  std::unique_ptr<Communicator> group = planning::communicator(0, 2, BackendKind::nccl);
  Enqueuing stream{};
};

TEST(FlightRecorder, ReadsTheMarksOfStreamsThatEnqueue) {
  EnqueuingRank rank;
  rank.recorder.know_group(*rank.group, "world", {0, 1});
  rank.submit("a");
  rank.submit("b");
  rank.recorder.poll();
  EXPECT_EQ(rank.reader.read().open.at(0).started, 0) << "its stream has not come there";

  rank.stream.marks[0]->at = 10;
  const std::int64_t before = FlightFile::now();
  rank.recorder.poll();
  FlightState state = rank.reader.read();
  ASSERT_EQ(state.open.size(), 2U);
  EXPECT_GE(state.open[0].started, before);
  EXPECT_EQ(state.open[0].ended, 0);

  rank.stream.marks[1]->at = 10;
  rank.stream.marks[2]->at = 10;
  rank.submit("c");  // reads marks too
  state = rank.reader.read();
  ASSERT_EQ(state.open.size(), 2U);
  EXPECT_EQ(state.open[0].name, "all_gather(b)");
  EXPECT_NE(state.open[0].started, 0);
  EXPECT_EQ(state.last.at(0).name, "all_gather(a)");
  EXPECT_GE(state.last.at(0).ended, state.last.at(0).started);
}

TEST(FlightRecorder, TimesOfADeviceLieBetweenSubmissionAndNow) {
  EnqueuingRank rank;
  double device_time = 0;
  for (const double passed : {0.0, 5000.0, -5000.0, 11.0, 1.0}) {  // a clock that runs as it likes
    rank.submit("x");
    device_time += passed;
    for (const auto& mark : rank.stream.marks) {
      if (!mark->at) mark->at = device_time;
    }
    rank.recorder.poll();
    const FlightState::Collective last = rank.reader.read().last.at(0);
    EXPECT_GE(last.started, last.enqueued);
    EXPECT_GE(last.ended, last.enqueued);
    EXPECT_LE(last.ended, FlightFile::now());
  }
}

TEST(FlightRecorder, AFailedDeviceLeavesItsCollectivesOpen) {
  EnqueuingRank rank;
  rank.submit("x");
  rank.stream.marks[0]->broken = true;
  rank.recorder.poll();
  rank.recorder.poll();
  EXPECT_EQ(rank.reader.read().open.size(), 1U);
}

TEST(FlightRecorder, PollingBesideTheHostThreadLosesNothing) {
  EnqueuingRank rank;
  std::atomic<bool> done{false};
  std::thread watchdog([&] {
    while (!done) rank.recorder.poll();
  });
  for (int i = 0; i < 500; ++i) rank.submit("x");
  done = true;
  watchdog.join();
  for (const auto& mark : rank.stream.marks) mark->at = 1;
  rank.recorder.poll();
  EXPECT_EQ(rank.reader.read().open.size(), 0U);
  EXPECT_EQ(rank.reader.read().last.at(0).number, 500U);
}

// The host thread may be stuck in what follows, and never submit again.
TEST(FlightRecorder, PollingReadsWhatWasSubmittedDuringAnotherPoll) {
  EnqueuingRank rank;
  rank.submit("a");
  std::latch polls(1);
  std::latch submitted(1);
  rank.stream.marks[0]->asked = [&, first = true]() mutable {
    if (!std::exchange(first, false)) return;
    polls.count_down();
    submitted.wait();
  };
  std::thread watchdog([&] { rank.recorder.poll(); });
  polls.wait();
  rank.submit("b");
  submitted.count_down();
  watchdog.join();
  for (const auto& mark : rank.stream.marks) mark->at = 1;
  rank.recorder.poll();
  EXPECT_EQ(rank.reader.read().last.at(0).name, "all_gather(b)");
}

}  // namespace
}  // namespace zero::testing
