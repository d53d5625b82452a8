// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <future>
#include <thread>
#include <utility>

#include "collectives/backends.h"
#include "launch/rendezvous/store/tcp_store.h"
#include "tests/case_names.h"
#include "tests/collectives/body.h"
#include "tests/errors.h"
#include "tests/launch/store_job.h"

namespace zero::testing {
namespace {

using namespace std::chrono_literals;
using ::testing::AllOf;
using ::testing::HasSubstr;

TEST(TcpStore, KeysSetByOneRankAreSeenByAll) {
  Job job(3);
  TcpStore second(job.options(1));
  TcpStore third(job.options(2));
  const std::string bytes("a\0b\n", 4);
  second.set("key", bytes);
  EXPECT_EQ(job.first.get("key", kPatience), bytes);
  EXPECT_EQ(third.get("key", kPatience), bytes);
  third.set("key", "");
  EXPECT_EQ(second.get("key", kPatience), "");
  EXPECT_EQ(second.lost(), std::nullopt);
}

TEST(TcpStore, AWaitEndsWhenTheLastKeyComes) {
  Job job(2);
  TcpStore second(job.options(1));
  std::jthread waiter([&] {
    second.wait({"a", "b"}, kPatience);
    second.set("c", "came");
  });
  // Other threads of the rank that waits go on meanwhile.
  second.set("a", "1");
  job.first.set("b", std::string(3 << 20, 'x'));
  EXPECT_EQ(job.first.get("c", kPatience), "came");
}

TEST(TcpStore, WhatNobodySetsIsNamed) {
  Job job(1);
  job.first.set("there", "1");
  EXPECT_THAT(error_of([&] {
                job.first.wait({"there", "x", "y"}, 10ms);
              }),
              AllOf(HasSubstr("[rank 0] rendezvous at 127.0.0.1:"),
                    HasSubstr("nobody set x, y within 10 ms; check that every rank reached")));
  EXPECT_THAT(error_of([&] { static_cast<void>(job.first.get("z", 10ms)); }),
              HasSubstr("nobody set z within 10 ms"));
}

TEST(TcpStore, ALongWaitIsReportedOnceWithTheRanksThatHaveNotCome) {
  Job job(2, std::nullopt, 30ms);
  EXPECT_THAT(error_of([&] {
                job.first.wait({"x", "y"}, 200ms);
              }),
              ::testing::EndsWith("rank 1 has not come within 200 ms; check that every rank was "
                                  "started"));
  EXPECT_THAT(job.reported(), ::testing::MatchesRegex(
                                  "still waiting: .rank 0. rendezvous at 127.0.0.1:[0-9]+: rank 1 "
                                  "has not come within 30 ms; [^\n]*\n"));
}

TEST(TcpStore, AWaitThatEndsInTimeIsNotReported) {
  Job job(1, std::nullopt, 10'000ms);
  std::jthread later([&] {
    std::this_thread::sleep_for(20ms);
    job.first.set("late", "1");
  });
  EXPECT_EQ(job.first.get("late", kPatience), "1");
  EXPECT_EQ(job.reported(), "");
}

TEST(TcpStore, AReportedWaitGoesOn) {
  Job job(1, std::nullopt, 20ms);
  std::jthread later([&] {
    while (job.reported().empty()) std::this_thread::sleep_for(1ms);
    job.first.set("late", "1");
  });
  EXPECT_EQ(job.first.get("late", kPatience), "1");
  EXPECT_THAT(job.reported(), HasSubstr("nobody set late within 20 ms; check that every rank"));
}

TEST(TcpStore, ManyLongValuesComeInSeveralReplies) {
  Job job(1);
  std::vector<std::string> keys;
  std::vector<std::string> values;
  for (const char name : {'a', 'b', 'c', 'd', 'e'}) {
    keys.emplace_back(1, name);
    values.emplace_back(700'000, name);
    job.first.set(keys.back(), values.back());
  }
  EXPECT_EQ(job.first.get_all(keys, kPatience), values);
  EXPECT_TRUE(job.first.get_all({}, kPatience).empty());
}

TEST(TcpStore, TheLongestValueCanBeSetAndRead) {
  Job job(1);
  // The message {"set", "b", VALUE} has exactly the bytes that a message may have.
  const std::string longest(store_wire::kLargest - 16, 'y');
  job.first.set("b", longest);
  job.first.set("a", std::string((1U << 20U) - 200, 'x'));
  const auto values = job.first.get_all({"a", "b"}, kPatience);
  EXPECT_EQ(values[0].size(), (1U << 20U) - 200);
  EXPECT_TRUE(values[1] == longest)
      << "a value that makes the reply too long comes in the next one";
  EXPECT_THAT(error_of([&] { job.first.set("b", longest + "y"); }),
              HasSubstr("set(b): a message of 67108865 bytes; rank 0 takes at most 67108864"));
}

TEST(TcpStore, AWaitTakesAsManyKeysAsAMessageHolds) {
  Job job(1);
  job.first.set("k", "1");
  std::vector<std::string> keys(store_wire::kMostParts - 2, "k");
  job.first.wait(keys, kPatience);
  keys.emplace_back("k");
  EXPECT_THAT(
      error_of([&] { job.first.wait(keys, kPatience); }),
      HasSubstr("wait(k, k, k, k, k, k, k, k and 1048575 others): 1048583 keys, expected at "
                "most 1048582"));
  const std::vector<std::string> long_keys(40, std::string(2U << 20U, 'k'));
  EXPECT_THAT(error_of([&] { job.first.wait(long_keys, 10ms); }),
              HasSubstr("keys of 83886240 bytes with their lengths, expected at most 67104768"));
  EXPECT_EQ(job.first.get("k", kPatience), "1");
}

TEST(TcpStore, AMessageNamesALongKeyByItsBeginning) {
  Job job(1);
  const std::string key(store_wire::kLargest - 4100, 'k');
  const std::string named = std::string(200, 'k') + "... (67104764 bytes)";
  const std::string missing = error_of([&] { job.first.wait({key, "x"}, 10ms); });
  EXPECT_THAT(missing, HasSubstr("wait(" + named + ", x): keys of 67104773 bytes"));
  EXPECT_THAT(error_of([&] { job.first.wait({key}, 10ms); }),
              AllOf(HasSubstr("nobody set " + named + " within 10 ms"),
                    ::testing::SizeIs(::testing::Lt(1000U))));
  EXPECT_THAT(error_of([&] { job.first.set(key + std::string(4096, 'k'), ""); }),
              HasSubstr("set(" + std::string(200, 'k') + "... (67108860 bytes)): a message of"));
}

TEST(TcpStore, ATimeoutMayBeAnyNumber) {
  Job job(1);
  std::jthread later([&] {
    std::this_thread::sleep_for(50ms);
    job.first.set("late", "1");
  });
  EXPECT_EQ(job.first.get("late", std::chrono::milliseconds::max()), "1");
  EXPECT_THAT(error_of([&] { job.first.wait({"never"}, std::chrono::milliseconds::min()); }),
              HasSubstr("nobody set never within 0 ms"));
  TcpStore::Options patient{.host = "127.0.0.1", .timeout = std::chrono::milliseconds::max()};
  const TcpStore other(patient);
}

TEST(TcpStore, ALostRankEndsEveryWait) {
  Job job(3);
  TcpStore second(job.options(1));
  std::string ended;
  std::jthread waiter([&] { ended = error_of([&] { second.wait({"never"}, kPatience); }); });
  try {
    const TcpStore third(job.options(2));
    throw std::runtime_error("its process ends");
  } catch (const std::runtime_error&) {
  }
  waiter.join();
  EXPECT_THAT(ended, HasSubstr("nobody will set never: rank 2 is gone: its process has ended"));
  EXPECT_THAT(error_of([&] { job.first.wait({"other"}, kPatience); }), HasSubstr("rank 2 is gone"));
  EXPECT_THAT(job.first.lost().value_or(""), HasSubstr("rank 2 is gone"));
  job.first.set("late", "1");
  EXPECT_EQ(second.get("late", kPatience), "1") << "what is there can still be read";
}

TEST(TcpStore, ARankThatSaysGoodbyeIsNotLost) {
  Job job(2);
  { const TcpStore second(job.options(1)); }
  EXPECT_EQ(job.first.lost(), std::nullopt);
}

TEST(TcpStore, RankZeroStaysUntilAllHaveSaidGoodbye) {
  auto job = std::make_unique<Job>(2);
  auto second = std::make_unique<TcpStore>(job->options(1));
  job->first.set("last", "word");
  std::jthread ends([&] { job.reset(); });
  EXPECT_EQ(second->get("last", kPatience), "word");
  second.reset();
}

TEST(TcpStore, WithoutRankZeroThereIsAnError) {
  auto job = std::make_unique<Job>(2);
  const TcpStore::Options options = job->options(1);
  std::string ended;
  {
    TcpStore second(options);
    try {
      const auto unwound = std::move(job);
      throw std::runtime_error("rank 0 ends");
    } catch (const std::runtime_error&) {
    }
    ended = error_of([&] { second.set("a", "1"); });
  }
  EXPECT_THAT(ended, AllOf(HasSubstr("[rank 1] rendezvous at 127.0.0.1:"), HasSubstr("rank 0")));
  TcpStore::Options impatient = options;
  impatient.timeout = 250ms;
  impatient.hint = "; look there";
  EXPECT_THAT(error_of([&] { TcpStore third(impatient); }),
              HasSubstr("no answer from rank 0 within 250 ms: Connection refused; check that rank "
                        "0 runs, and that MASTER_ADDR and MASTER_PORT are its host's; look there"));
}

TEST(TcpStore, RankZeroIsWaitedFor) {
  const int port = ForeignListener().port();  // free again
  std::string seen;
  std::promise<std::string> told;
  std::jthread early([&] {
    TcpStore second({.host = "localhost",
                     .port = port,
                     .rank = 1,
                     .world = 2,
                     .timeout = kPatience,
                     .report =
                         [&, first = true](const std::string& line) mutable {
                           if (std::exchange(first, false)) told.set_value(line);
                         },
                     .silence = 150ms});
    seen = second.get("a", kPatience);
  });
  EXPECT_EQ(told.get_future().get(),
            fmt::format("still waiting: [rank 1] rendezvous at localhost:{}: no answer from rank 0 "
                        "within 150 ms: Connection refused; check that rank 0 runs, and that "
                        "MASTER_ADDR and MASTER_PORT are its host's",
                        port));
  TcpStore first({.host = "localhost", .port = port, .rank = 0, .world = 2});
  first.set("a", "1");
  early.join();
  EXPECT_EQ(seen, "1");
}

TEST(TcpStore, StrangersAreRefused) {
  Job job(2);
  TcpStore::Options other = job.options(1);
  other.world = 3;
  EXPECT_THAT(error_of([&] { TcpStore second(other); }),
              HasSubstr("rank 0 refuses this process: it was started as one of 3 ranks, rank 0 as "
                        "one of 2"));
  TcpStore second(job.options(1));
  EXPECT_THAT(error_of([&] { TcpStore twin(job.options(1)); }),
              HasSubstr("rank 1 is there already; give each process a rank of its own"));
  EXPECT_THAT(error_of([&] {
                TcpStore({.host = "127.0.0.1", .port = job.first.port(), .rank = 0, .world = 1});
              }),
              AllOf(HasSubstr("[rank 0] rendezvous: cannot listen on port"),
                    HasSubstr("of this host for this user: Address already in use (process"),
                    HasSubstr("has it); give a MASTER_PORT that is free there")));
}

// As two jobs of one user with one MASTER_PORT on one host.
void check_another_job_is_refused(const std::optional<JobSecret>& secret) {
  TcpStore first({.host = "127.0.0.1", .rank = 0, .world = 2, .job = "4711.0", .secret = secret});
  const auto joins = [&](const std::string& job) {
    const TcpStore store({.host = "127.0.0.1",
                          .port = first.port(),
                          .rank = 1,
                          .world = 2,
                          .job = job,
                          .timeout = kPatience,
                          .secret = secret});
  };
  EXPECT_THAT(error_of([&] { joins("47\t12.0"); }),
              AllOf(HasSubstr("[rank 1] rendezvous at 127.0.0.1:"),
                    HasSubstr("rank 0 refuses this process: this port belongs to job \"4711.0\", "
                              "rank 1 is of job \"47?12.0\"; give each job a MASTER_PORT of its "
                              "own, or all ranks of one job the same TORCHELASTIC_RUN_ID")));
  EXPECT_THAT(error_of([&] { joins(""); }), HasSubstr("rank 1 is of a job without a name"));
  EXPECT_EQ(first.lost(), std::nullopt) << "the other job's rank is none of this job's";
  EXPECT_EQ(error_of([&] { joins("4711.0"); }), "no error");
}

TEST(TcpStore, ARankOfAnotherJobIsRefusedAndTakesNoSeat) {
  check_another_job_is_refused(std::nullopt);
  check_another_job_is_refused(secret_of(kSecret));
}

// Ranks of two hosts, as the names say, that have only the store in common.
TEST(ControlWorld, AgreesAndRefusesGradients) {
  constexpr int kRanks = 3;
  Job job(kRanks);
  std::vector<std::string> errors(kRanks);
  const auto body = [&](int rank, TcpStore& store) {
    const auto world = store_only::world({store, rank, kRanks}, {"a", "b", "a"});
    const auto device = cpu::open();
    const test::Rank me(*world, *device);
    test::check_exchange(*world, *device);
    test::check_all_reduce(me, 100);
    test::check_store(me);
    std::vector<std::int64_t> value{rank};
    const View view = View::of(std::span(value));
    world->broadcast(view, 2, device->communication(), {"value"});
    world->barrier(device->communication(), {"value"});
    device->communication().synchronize();
    EXPECT_EQ(value[0], 2);
    EXPECT_EQ(world->local_rank(), rank == 2 ? 1 : 0);
    EXPECT_EQ(world->local_size(), rank == 1 ? 1 : 2);
    const auto part = world->split(rank % 2, 0);
    EXPECT_EQ(part->size(), rank == 1 ? 1 : 2);
    EXPECT_EQ(part->local_size(), part->size());
    std::vector<float> sums(6);
    const Slices full = Slices::even(View::of(std::span(sums)), kRanks);
    world->reduce_scatter(full, {{}, full.of(rank), nullptr}, {}, device->communication(), {"h.0"});
  };
  {
    std::vector<std::jthread> ranks;
    for (int rank = 0; rank < kRanks; ++rank) {
      ranks.emplace_back([&, rank] {
        std::optional<TcpStore> own;
        TcpStore& store = rank == 0 ? job.first : own.emplace(job.options(rank));
        errors[static_cast<std::size_t>(rank)] = error_of([&] { body(rank, store); });
      });
    }
  }
  for (int rank = 0; rank < kRanks; ++rank) {
    EXPECT_THAT(errors[static_cast<std::size_t>(rank)],
                HasSubstr(fmt::format("[rank {}] reduce_scatter(h.0): the ranks are on several "
                                      "hosts and have only a store in common; to compute on the "
                                      "CPU there, start them with mpirun",
                                      rank)));
  }
}

TEST(ControlWorld, CallsThatDifferAreErrors) {
  Job job(2);
  TcpStore second(job.options(1));
  const auto device = cpu::open();
  const auto one = store_only::world({job.first, 0, 2}, {"a", "b"});
  const auto other = store_only::world({second, 1, 2}, {"a", "b"});
  std::vector<float> values(3);
  one->broadcast(View::of(std::span(values)).slice(0, 2), 0, device->communication(), {"x"});
  device->communication().synchronize();
  EXPECT_THAT(error_of([&] {
                other->broadcast(View::of(std::span(values)), 0, device->communication(), {"x"});
                device->communication().synchronize();
              }),
              HasSubstr("[rank 1] broadcast(x): a rank gave 8 bytes, expected 12; all ranks must "
                        "make the same call"));
}

class HostWorlds : public ::testing::TestWithParam<int> {};

// Ranks that found each other by TCP and share memory: threads here, as if they were processes.
TEST_P(HostWorlds, DoEverythingThatACommunicatorDoes) {
  const int world = GetParam();
  Job job(world);
  std::vector<std::string> errors(static_cast<std::size_t>(world));
  {
    std::vector<std::jthread> ranks;
    for (int rank = 0; rank < world; ++rank) {
      ranks.emplace_back([&, rank] {
        errors[static_cast<std::size_t>(rank)] = error_of([&] {
          std::optional<TcpStore> own;
          TcpStore& store = rank == 0 ? job.first : own.emplace(job.options(rank));
          const auto communicator = host::world({store, rank, world});
          const auto device = cpu::open();
          const test::Rank me(*communicator, *device);
          test::check_everything(*communicator, *device, 1000);
          test::check_split(me);
          test::check_store(me);
          test::check_exchange(*communicator, *device);
          test::check_buckets(me);
        });
      });
    }
  }
  EXPECT_THAT(errors, ::testing::Each("no error"));
}

INSTANTIATE_TEST_SUITE_P(Worlds, HostWorlds, ::testing::Values(1, 2, 5), zero::testing::kCaseName);

}  // namespace
}  // namespace zero::testing
