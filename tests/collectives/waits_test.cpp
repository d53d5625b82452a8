// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
// Ranks that do not come.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <latch>
#include <thread>

#include "collectives/long_wait.h"
#include "collectives/stores.h"
#include "tests/collectives/host_ranks.h"
#include "tests/collectives/messages.h"
#include "tests/told_lines.h"

namespace zero::test {
namespace {

using namespace std::chrono_literals;
using ::testing::AllOf;
using ::testing::Contains;
using ::testing::Each;
using ::testing::ElementsAre;
using ::testing::EndsWith;
using ::testing::Ge;
using ::testing::HasSubstr;
using ::testing::MatchesRegex;
using ::testing::Not;
using ::testing::StartsWith;
using testing::ToldLines;

constexpr auto kWarning = 400ms;
constexpr auto kTimeout = 2000ms;
const std::string kEnd =
    ", the timeout of collectives; find out what holds each of them up, or raise "
    "run.collective_timeout (WaitLimits::timeout)";

void pass_barrier(Communicator& communicator, Device& device, const std::string& purpose) {
  communicator.barrier(device.communication(), {purpose});
  device.communication().synchronize();
}

TEST(LongWait, IsKnownByItsMessage) {
  EXPECT_TRUE(LongWait::is_overdue("[rank 0] barrier(a): waiting for 2 s for rank 1" + kEnd));
  EXPECT_FALSE(LongWait::is_overdue("[rank 0] barrier(a): rank 1 left"));
}

TEST(LongWait, IsReadFromItsMessageWithTheFirstAbsentRank) {
  const CallContext context;
  const auto first_of = [&](const std::vector<AbsentRank>& absent) {
    return LongWait::first_absent(
        "[rank 3] barrier(a): the group has failed: " +
        LongWait(context).overdue({.who = "[rank 0] barrier(a)", .step = 12, .absent = absent}));
  };
  const auto elsewhere = first_of({{12, "on host b.c-7: unknown"}, {13, "a thread"}});
  ASSERT_TRUE(elsewhere);
  EXPECT_EQ(elsewhere->rank, 12);
  EXPECT_EQ(elsewhere->host(), "b.c-7");
  const auto here = first_of({{0, "process 4711 runs"}, {1, "on host b: unknown"}});
  ASSERT_TRUE(here);
  EXPECT_EQ(here->rank, 0);
  EXPECT_EQ(here->host(), "");
  EXPECT_FALSE(
      LongWait::first_absent("[rank 0] barrier(a): waiting for 2 s for rank 1 (a thread)"));
}

TEST(RanksToBlame, AreThoseForWhichNobodyAnswersThatTheyWait) {
  EXPECT_THAT(ranks_to_blame({0}, {}, 2), ElementsAre(0));
  EXPECT_THAT(ranks_to_blame({0}, {{0, {1}}}, 2), ElementsAre(1)) << "rank 0 waits itself";
  EXPECT_THAT(ranks_to_blame({0, 3}, {{0, {1, 3}}, {3, {1, 0, 2}}}, 2), ElementsAre(1));
  EXPECT_THAT(ranks_to_blame({0, 1, 4}, {{0, {4}}}, 2), ElementsAre(1, 4));
  EXPECT_THAT(ranks_to_blame({0}, {{0, {2}}}, 2), ::testing::IsEmpty()) << "for each other";
}

TEST(WaitLimits, AreCheckedWhereTheyAreSet) {
  CallContext context;
  EXPECT_EQ(error_of([&] { context.set_limits({.warning = 20ms, .timeout = 10ms}); }),
            "wait limits: a warning after 20 ms would come after the timeout, 10 ms; give the "
            "warning the shorter time, or 0 for none");
  EXPECT_EQ(error_of([&] { context.set_limits({.warning = -1ms}); }),
            "wait limits of -1 ms (warning) and 600000 ms (timeout); expected 0, for none, or "
            "more");
  context.set_limits({.warning = 20ms, .timeout = 0ms});
  EXPECT_EQ(context.limits()->warning, 20ms);
}

TEST(LongWait, NamesTheCallTheStepAndTheRanksWithWhatTheyDo) {
  CallContext context;
  context.set_limits({.warning = 30s, .timeout = 600s});
  const LongWait wait(context);
  EXPECT_EQ(wait.overdue({.who = "[rank 0] all_gather(h.3)",
                          .step = 12,
                          .absent = {{2, "process 4711 is stopped"}, {5, "process 4714 runs"}}}),
            "[rank 0] all_gather(h.3), step 12: waiting for 600 s for rank 2 (process 4711 is "
            "stopped) and rank 5 (process 4714 runs)" +
                kEnd);
}

TEST(LongWait, NamesAFewOfManyRanks) {
  CallContext context;
  ToldLines lines;
  context.set_limits({.warning = 30s, .warn = lines.adder()});
  Waiting waiting{.who = "[rank 0] barrier(x)"};
  for (int rank = 1; rank < 20; ++rank) waiting.absent.push_back({rank, "a thread"});
  LongWait(context).warn(waiting);
  EXPECT_THAT(lines.all(),
              ElementsAre(AllOf(StartsWith("[rank 0] barrier(x): waiting for 30 s for rank 1 (a "
                                           "thread), rank 2 (a thread), "),
                                HasSubstr("rank 8 (a thread) and 11 more"))));
}

TEST(LongWait, SaysHowTheWaitEnds) {
  const auto line_with = [](WaitLimits limits) {
    CallContext context;
    ToldLines lines;
    limits.warn = lines.adder();
    context.set_limits(std::move(limits));
    LongWait(context).warn({.who = "[rank 0] barrier(x)", .step = 1, .absent = {{1, "a thread"}}});
    return lines.all().at(0);
  };
  EXPECT_EQ(line_with({.warning = 30s, .timeout = 600s}),
            "[rank 0] barrier(x), step 1: waiting for 30 s for rank 1 (a thread); the job ends "
            "after 600 s (run.collective_timeout)");
  EXPECT_EQ(line_with({.warning = 30s, .timeout = 0s}),
            "[rank 0] barrier(x), step 1: waiting for 30 s for rank 1 (a thread); no timeout "
            "(run.collective_timeout is 0)");
  EXPECT_EQ(line_with({.warning = 30s, .timeout = 0s, .disk_phase = "load"}),
            "[rank 0] barrier(x), load: waiting for 30 s for rank 1 (a thread); no timeout: a disk "
            "decides how long a load takes");
}

TEST(LongWait, WarnsAgainAtTwiceTheTimeEachTime) {
  CallContext context;
  ToldLines lines;
  context.set_limits({.warning = 500ms, .timeout = 3000ms, .warn = lines.adder()});
  const auto begin = std::chrono::steady_clock::now();
  LongWait wait(context);
  std::vector<std::chrono::steady_clock::duration> times;
  for (LongWait::Due due{}; due != LongWait::Due::timeout; due = wait.due()) {
    if (due == LongWait::Due::warning) {
      times.push_back(std::chrono::steady_clock::now() - begin);
      wait.warn({.who = "[rank 0] barrier(x)", .absent = {{1, "a thread"}}});
    }
    std::this_thread::sleep_for(wait.until_due(1h));
  }
  const auto said = [](const std::string& time) {
    return StartsWith("[rank 0] barrier(x): waiting for " + time + " s for rank 1 (a thread); ");
  };
  EXPECT_THAT(lines.all(), ElementsAre(said("0.5"), said("1"), said("2")));
  EXPECT_THAT(times, ElementsAre(Ge(500ms), Ge(1000ms), Ge(2000ms)));
}

// A rank that seldom looks does not make up for the lines in between.
TEST(LongWait, WarnsOnceOfTimesThatHavePassedTogether) {
  CallContext context;
  context.set_limits({.warning = 100ms, .timeout = 0ms});
  LongWait wait(context);
  std::this_thread::sleep_for(250ms);
  EXPECT_EQ(wait.due(), LongWait::Due::warning);
  EXPECT_EQ(wait.due(), LongWait::Due::nothing);
}

TEST(LongWait, WithoutLimitsHasNothingToSay) {
  CallContext context;
  context.set_limits({.warning = 0ms, .timeout = 0ms});
  LongWait wait(context);
  EXPECT_EQ(wait.due(), LongWait::Due::nothing);
  EXPECT_EQ(wait.until_due(77ms), 77ms);
  EXPECT_EQ(wait.until_due(1h), 1s);  // it must look often enough to notice that it was suspended
}

TEST(LongWait, DoesNotCountTheTimeInWhichThisProcessWasStopped) {
  CallContext context;
  context.set_limits({.warning = 2500ms, .timeout = 3000ms});
  LongWait wait(context);
  const pid_t self = getpid();
  const pid_t waker = fork();
  if (waker == 0) {
    kill(self, SIGSTOP);
    usleep(3'500'000);
    kill(self, SIGCONT);
    _exit(0);
  }
  waitpid(waker, nullptr, 0);
  EXPECT_EQ(wait.due(), LongWait::Due::nothing);
}

TEST(LongWait, IsSilentOnceNobodyIsAbsent) {
  CallContext context;
  ToldLines lines;
  context.set_limits({.warning = 1ms, .timeout = 1ms, .warn = lines.adder()});
  LongWait wait(context);
  while (wait.due() == LongWait::Due::nothing) std::this_thread::yield();
  wait.look([] { return Waiting{.who = "[rank 0] barrier(x)"}; });
  EXPECT_THAT(lines.all(), ElementsAre());
}

// Rank 1 is busy elsewhere until the others have given up.
TEST(LocalWaits, AThreadThatDoesNotComeIsNamedAndToldLater) {
  ToldLines lines;
  std::latch gave_up(2);
  const auto messages = messages_of(3, [&](Communicator& comm, Device& device) {
    pass_barrier(comm, device, "together");
    comm.set_wait_limits({.warning = kWarning, .timeout = kTimeout, .warn = lines.adder()});
    comm.set_step(12);
    if (comm.rank() == 1) {
      gave_up.wait();
      return pass_barrier(comm, device, "later");
    }
    const std::string message = error_of([&] { pass_barrier(comm, device, "h.3"); });
    gave_up.count_down();
    fail("{}", message);
  });
  const std::string line = "] barrier(h.3), step 12: waiting for 2 s for rank 1 (a thread)" + kEnd;
  for (const int rank : {0, 2}) {
    EXPECT_THAT(messages[static_cast<std::size_t>(rank)],
                AllOf(StartsWith(fmt::format("[rank {}] barrier(h.3)", rank)), HasSubstr(line)));
  }
  EXPECT_THAT(messages[1], AllOf(StartsWith("[rank 1] barrier(later): the group has failed: [rank"),
                                 HasSubstr(line)));
  // A rank that is late itself is waited for too; the others' lines name rank 1 alone.
  EXPECT_THAT(lines.all(), Each(HasSubstr("rank 1 (a thread)")));
  EXPECT_THAT(lines.all(),
              Contains(MatchesRegex(".rank [02]. barrier.h.3., step 12: waiting for 0.4 s for "
                                    "rank 1 .a thread.; the job ends after 2 s .*")));
}

TEST(LocalWaits, ASlowThreadIsAWarningAndNoMore) {
  ToldLines lines;
  std::vector<std::int64_t> sums(3);
  const auto messages = messages_of(3, [&](Communicator& comm, Device& device) {
    pass_barrier(comm, device, "together");
    comm.set_wait_limits({.warning = kWarning, .timeout = 0ms, .warn = lines.adder()});
    if (comm.rank() == 1) lines.wait_for(4);  // two of each other rank
    std::int64_t& sum = sums[static_cast<std::size_t>(comm.rank())];
    sum = comm.rank() + 1;
    comm.all_reduce(View::of(std::span(&sum, 1)), ReduceOp::sum, device.communication(), {"norm"});
    device.communication().synchronize();
  });
  EXPECT_THAT(messages, Each("no error"));
  EXPECT_THAT(sums, Each(6));
  for (const int rank : {0, 2}) {
    EXPECT_THAT(lines.all(),
                Contains(AllOf(StartsWith(fmt::format(
                                   "[rank {}] all_reduce(norm): waiting for 0.4 s for ", rank)),
                               HasSubstr("rank 1 (a thread)"))));
  }
}

TEST(LocalWaits, PartsInheritLimitsAndStep) {
  std::latch gave_up(1);
  const auto messages = messages_of(4, [&](Communicator& comm, Device& device) {
    comm.set_wait_limits({.warning = 0ms, .timeout = kTimeout});
    const auto part = comm.split(comm.rank() / 2, 0);
    comm.set_step(7);
    if (comm.rank() < 2) return;
    if (comm.rank() == 3) return gave_up.wait();
    const std::string message = error_of([&] { pass_barrier(*part, device, "x"); });
    gave_up.count_down();
    fail("{}", message);
  });
  EXPECT_EQ(messages[2],
            "[rank 0] barrier(x), step 7: waiting for 2 s for rank 1 (a thread)" + kEnd);
}

TEST(HostWaits, ARankThatDoesNotComeIsNamedAndToldLater) {
  ToldLines lines;
  std::latch gave_up(2);
  CallContext context;
  context.set_limits({.warning = kWarning, .timeout = kTimeout, .warn = lines.adder()});
  HostRanks ranks(3);
  ranks.call({4, 5, 6});
  const auto ends = ranks.run([&](HostTransport& transport, host::Memory&, int rank) {
    transport.barrier("together");
    transport.set_context({std::shared_ptr<void>(), &context});
    transport.set_step(12);
    if (rank == 1) {
      gave_up.wait();
      return transport.barrier("later");
    }
    const std::string message = error_of([&] { transport.barrier("h.3"); });
    gave_up.count_down();
    fail("{}", message);
  });
  // The ranks are threads of this process here.
  const std::string line =
      fmt::format("step 12: waiting for 2 s for rank 5 (process {} ", getpid());
  for (const int rank : {0, 2}) {
    EXPECT_THAT(ends[static_cast<std::size_t>(rank)],
                AllOf(StartsWith(fmt::format("[rank {}] barrier(h.3)", 4 + rank)), HasSubstr(line),
                      HasSubstr(kEnd)));
  }
  EXPECT_THAT(ends[1], AllOf(StartsWith("[rank 5] barrier(later): the group has failed: [rank "),
                             HasSubstr(line)));
  EXPECT_THAT(lines.all(), Each(HasSubstr(fmt::format("rank 5 (process {} ", getpid()))));
  EXPECT_THAT(
      lines.all(),
      Contains(MatchesRegex(fmt::format(".rank [46]. barrier.h.3., step 12: waiting for 0.4 s "
                                        "for rank 5 .process {} [a-z ]+.; the job ends .*",
                                        getpid()))));
}

/// Ranks of a control world as threads; gives each one's message.
std::vector<std::string> control_ranks(const std::function<void(Communicator&, Device&)>& body) {
  InProcessStore store;
  const std::vector<std::string> hosts{"a", "b", "a"};
  std::vector<std::string> messages(hosts.size());
  {
    std::vector<std::jthread> threads;
    for (int rank = 0; rank < 3; ++rank) {
      threads.emplace_back([&, rank] {
        messages[static_cast<std::size_t>(rank)] = error_of([&] {
          const auto world = store_only::world({store, rank, 3}, hosts);
          const auto device = cpu::open();
          body(*world, *device);
        });
      });
    }
  }
  return messages;
}

TEST(ControlWaits, ARankThatDoesNotComeIsNamedAndToldLater) {
  ToldLines lines;
  std::latch gave_up(2);
  const auto messages = control_ranks([&](Communicator& comm, Device& device) {
    pass_barrier(comm, device, "together");
    comm.set_wait_limits({.warning = kWarning, .timeout = kTimeout, .warn = lines.adder()});
    comm.set_step(3);
    if (comm.rank() == 1) {
      gave_up.wait();
      pass_barrier(comm, device, "settings");  // which the others have come to
      return pass_barrier(comm, device, "later");
    }
    const std::string message = error_of([&] { pass_barrier(comm, device, "settings"); });
    gave_up.count_down();
    fail("{}", message);
  });
  const std::string line =
      "] barrier(settings), step 3: waiting for 2 s for rank 1 (on host b: unknown)" + kEnd;
  for (const int rank : {0, 2}) {
    EXPECT_THAT(
        messages[static_cast<std::size_t>(rank)],
        AllOf(StartsWith(fmt::format("[rank {}] barrier(settings)", rank)), HasSubstr(line)));
  }
  EXPECT_THAT(messages[1], AllOf(StartsWith("[rank 1] barrier(later): the group has failed: [rank"),
                                 HasSubstr(line)));
  EXPECT_THAT(lines.all(), Each(HasSubstr("rank 1 (on host b: unknown)")));
  EXPECT_THAT(lines.all(), Contains(EndsWith("waiting for 0.4 s for rank 1 (on host b: unknown); "
                                             "the job ends after 2 s (run.collective_timeout)")));
}

/// A store that knows of a rank that is gone.
class StoreOfALostRank final : public Store {
 public:
  void set(std::string_view key, std::string_view value) override { inner_.set(key, value); }
  std::string get(std::string_view key, std::chrono::milliseconds timeout) override {
    return inner_.get(key, timeout);
  }
  void wait(const std::vector<std::string>& keys, std::chrono::milliseconds timeout) override {
    inner_.wait(keys, timeout);
  }
  std::optional<std::string> lost() override { return "rank 1 is gone"; }

 private:
  InProcessStore inner_;
};

TEST(ControlWaits, ALostRankIsNotWaitedForUntilTheTimeout) {
  StoreOfALostRank store;
  const auto world = store_only::world({store, 0, 2}, {"a", "b"});
  const auto device = cpu::open();
  world->set_wait_limits({.warning = 0ms, .timeout = 10s});
  EXPECT_THAT(error_of([&] { pass_barrier(*world, *device, "settings"); }),
              Not(HasSubstr("the timeout of collectives")));
}

TEST(ControlWaits, ASlowRankIsAWarningAndNoMore) {
  ToldLines lines;
  const auto messages = control_ranks([&](Communicator& comm, Device& device) {
    pass_barrier(comm, device, "together");
    comm.set_wait_limits({.warning = kWarning, .timeout = 0ms, .warn = lines.adder()});
    if (comm.rank() == 1) lines.wait_for(2);
    std::int64_t value = comm.rank() == 1 ? 5 : 0;
    comm.broadcast(View::of(std::span(&value, 1)), 1, device.communication(), {"value"});
    device.communication().synchronize();
    EXPECT_EQ(value, 5);
  });
  EXPECT_THAT(messages, Each("no error"));
}

}  // namespace
}  // namespace zero::test
