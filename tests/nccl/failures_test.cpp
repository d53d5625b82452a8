// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
// What goes wrong between GPUs.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdio>
#include <cstdlib>
#include <latch>
#include <mutex>
#include <stdexcept>
#include <thread>

#include "collectives/nccl/check.h"
#include "tests/collectives/body.h"
#include "tests/errors.h"
#include "tests/nccl/ranks.h"

namespace zero::test {
namespace {

using namespace std::chrono_literals;
using nccl::Gpus;
using ::testing::AllOf;
using ::testing::AnyOf;
using ::testing::Each;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::StartsWith;

/// Each rank first describes itself, then the ranks meet.
std::vector<std::string> meet(int ranks, const std::function<void(int rank)>& describe,
                              const nccl::Options& options = {}) {
  return store_ranks(ranks, [&](const StoreRank& self) {
    describe(self.rank);
    const auto device = cpu::open();
    const auto communicator = nccl::world(self, *device, options);
    check_moves({*communicator, *device}, 100);
  });
}

TEST(NcclStart, RanksOfTwoVersionsAreNamed) {
  EXPECT_THAT(meet(3, [](int rank) { fake_nccl::rank().version = rank == 2 ? 22705 : 22803; }),
              ElementsAre("[rank 0] rank 2 has NCCL 2.27.5, rank 0 has 2.28.3; give all ranks one "
                          "version",
                          StartsWith("[rank 1] rank 2 has NCCL 2.27.5"),
                          StartsWith("[rank 2] rank 2 has NCCL 2.27.5")));
}

TEST(NcclStart, GpusOfTwoTypesAreNamed) {
  EXPECT_THAT(meet(2, [](int rank) { fake_nccl::rank().gpu = rank == 0 ? "H200" : "A100"; }),
              Each(HasSubstr("rank 1 computes on A100, rank 0 on H200; results would differ: give "
                             "all ranks one type of GPU")));
}

TEST(NcclStart, RanksThatSumInTwoWaysAreNamed) {
  EXPECT_THAT(store_ranks(2,
                          [](const StoreRank& self) {
                            const auto device = cpu::open();
                            const auto sums = self.rank == 0 ? nccl::Sums::exact : nccl::Sums::fast;
                            nccl::world(self, *device, {.sums = sums});
                          }),
              Each(HasSubstr("rank 1 asks for fast sums, rank 0 for exact sums")));
}

TEST(NcclStart, TwoRanksOnOneGpuAreNamedUnlessTheyMayBe) {
  const auto describe = [](int rank) { fake_nccl::rank().gpu_id = rank == 0 ? "GPU-a" : "GPU-b"; };
  EXPECT_THAT(meet(3, describe),
              Each(AllOf(HasSubstr("ranks 1 and 2 are both on Fake GPU GPU-b of "),
                         HasSubstr("give each a GPU of its own, or let ranks share GPUs"))));
  ::unsetenv("NCCL_HOSTID");
  EXPECT_THAT(meet(3, describe, {.gpus = Gpus::shared}), Each("no error"));
  EXPECT_THAT(std::getenv("NCCL_HOSTID"), StartsWith("zero-rank-"));
  ::unsetenv("NCCL_HOSTID");
}

TEST(NcclStart, RanksThatDoNotMeetEndInTime) {
  const auto ends = store_ranks(2, [](const StoreRank& self) {
    const auto device = cpu::open();
    // A third rank says who it is, and comes no further.
    const StoreRank three{self.store, self.rank, 3};
    if (self.rank == 0) {
      self.store.set("nccl/identity/2", "2.28.3\nFake GPU\nGPU-c\nhost\nexact sums\n");
    }
    nccl::world(three, *device, {.timeout = 100ms});
  });
  EXPECT_THAT(ends, ::testing::Contains(HasSubstr("start of NCCL: the ranks did not meet in time; "
                                                  "check that every rank reached this point")));
  EXPECT_THAT(ends, Each(HasSubstr("start of NCCL: ")));
  EXPECT_EQ(fake_nccl::alive(), 0);
}

TEST(NcclStart, WhatIsNoIdentityIsRefused) {
  EXPECT_THAT(store_ranks(1,
                          [](const StoreRank& self) {
                            const auto device = cpu::open();
                            self.store.set("nccl/identity/1", "2.28.3");
                            nccl::world({self.store, 0, 2}, *device, {});
                          }),
              Each(HasSubstr("does not say what a rank of NCCL is; all ranks need one build")));
  EXPECT_THAT(store_ranks(1,
                          [](const StoreRank& self) {
                            const auto device = cpu::open();
                            self.store.set("nccl/identity/0",
                                           "2.28.3\nFake GPU\nGPU-c\nhost\nexact sums\n");
                            self.store.set("nccl/id", "short");
                            nccl::world({self.store, 1, 2}, *device, {});
                          }),
              Each(HasSubstr("rank 0 gave 5 bytes to meet by, expected 128")));
}

/// Gathers until something happens.
void gather_for_ever(Communicator& communicator, Device& device) {
  const Rank rank(communicator, device);
  const Buffer values = rank.allocate(30, DType::fp32);
  const Slices full = Slices::even(values.view(), communicator.size());
  for (;;) {
    rank.communicate([&](Stream& stream) {
      communicator.all_gather(full.of(communicator.rank()), full, stream, {"h.3"});
    });
    device.compute().synchronize();
    device.communication().synchronize();
  }
}

TEST(NcclFailures, ALostRankEndsAllOthers) {
  const auto ends = nccl_ranks(3, [](Communicator& communicator, Device& device) {
    if (communicator.rank() == 1) throw std::runtime_error("killed");
    gather_for_ever(communicator, device);
  });
  EXPECT_EQ(ends[1], "killed");
  for (const int rank : {0, 2}) {
    EXPECT_THAT(
        ends[static_cast<std::size_t>(rank)],
        AllOf(HasSubstr(fmt::format("[rank {}] all_gather(h.3): the group has failed: ", rank)),
              HasSubstr("rank 1 ")));
  }
  EXPECT_EQ(fake_nccl::alive(), 0);
}

TEST(NcclFailures, AnErrorOfTheLibraryEndsAllRanksAndNamesTheCall) {
  const auto ends = nccl_ranks(3, [](Communicator& communicator, Device& device) {
    if (communicator.rank() == 2) fake_nccl::break_rank(2, 4);
    gather_for_ever(communicator, device);
  });
  EXPECT_THAT(ends[2],
              HasSubstr("[rank 2] all_gather(h.3): NCCL: remote process exited or there was a "
                        "network error: a link of the fake broke"));
  for (const std::size_t rank : {0U, 1U}) {
    EXPECT_THAT(ends[rank], AllOf(HasSubstr("the group has failed: [rank 2] all_gather(h.3): NCCL"),
                                  HasSubstr("(the last call here: ")));
  }
}

// As over sockets, where a rank that dies is an error of the library for the others, at once. Its
// own end may be told first.
TEST(NcclFailures, ARankThatTheLibraryLostIsNamed) {
  const auto ends = nccl_ranks(2, [](Communicator& communicator, Device& device) {
    if (communicator.rank() == 0) {
      fake_nccl::break_rank(0, 1);
      gather_for_ever(communicator, device);
    }
    std::this_thread::sleep_for(100ms);
    throw std::runtime_error("killed");
  });
  EXPECT_THAT(ends[0],
              AllOf(AnyOf(HasSubstr("rank 1 is gone (here: [rank 0] "),
                          HasSubstr("rank 1 ended its part with an error (here: [rank 0] ")),
                    HasSubstr("NCCL: remote process exited or there was a network error")));
}

// While nothing is under way, as between two steps.
TEST(NcclFailures, TheWatchSeesWhatNobodyWaitsFor) {
  const auto ends = nccl_ranks(2, [](Communicator& communicator, Device& device) {
    const Rank rank(communicator, device);
    rank.communicate([&](Stream& stream) { communicator.barrier(stream, {"ready"}); });
    device.communication().synchronize();
    if (communicator.rank() == 0) fake_nccl::break_rank(0, 1);
    for (;;) {
      std::this_thread::sleep_for(50ms);
      if (communicator.rank() == 0) {
        rank.communicate([&](Stream& stream) { communicator.barrier(stream, {"next"}); });
        device.communication().synchronize();
      } else {
        communicator.broadcast({}, 0, device.communication(), {"nothing"});
      }
    }
  });
  EXPECT_THAT(ends[0], HasSubstr("[rank 0] barrier(next)"));
  EXPECT_THAT(ends[1], AllOf(HasSubstr("[rank 1] broadcast(nothing): the group has failed: "),
                             HasSubstr("[rank 0] barrier(next)")));
}

TEST(NcclFailures, PartsFailWithTheWhole) {
  const auto ends = nccl_ranks(4, [](Communicator& communicator, Device& device) {
    const auto part = communicator.split(communicator.rank() % 2, 0);
    if (communicator.rank() == 3) throw std::runtime_error("killed");
    gather_for_ever(*part, device);
  });
  EXPECT_THAT(ends[0], HasSubstr("[rank 0] all_gather(h.3): the group has failed: "));
  EXPECT_THAT(ends[2], HasSubstr("[rank 1] all_gather(h.3): the group has failed: "));
  EXPECT_EQ(fake_nccl::alive(), 0);
}

/// Rank 0's library fails, and rank 0 never ends; rank 1 says on standard error how it ended.
void fail_without_end(bool abort_blocks) {
  nccl_ranks(2,
             [&](Communicator& communicator, Device& device) {
               const bool first = communicator.rank() == 0;
               if (first && abort_blocks) fake_nccl::block_aborts(0);
               if (first) fake_nccl::break_rank(0, 2);
               const std::string end = error_of([&] { gather_for_ever(communicator, device); });
               if (!first) std::fputs((end + "\n").c_str(), stderr);
               while (first) std::this_thread::sleep_for(10ms);
             },
             {.ending = 3000ms});
}

const auto kLastWords =
    AllOf(HasSubstr("[rank 0] NCCL: the group has failed and did not end within 3 s; this process "
                    "ends: [rank 0] "),
          HasSubstr("all_gather(h.3): NCCL: remote process exited or there was a network error"));

// As one whose thread waits for work that the library cannot abort.
TEST(NcclFailuresDeathTest, ARankThatDoesNotEndEndsItsProcess) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  EXPECT_EXIT(fail_without_end(false), ::testing::ExitedWithCode(1), kLastWords);
}

TEST(NcclFailuresDeathTest, AnAbortThatBlocksEndsTheProcessOnceTheOthersKnow) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  EXPECT_EXIT(
      fail_without_end(true), ::testing::ExitedWithCode(1),
      AllOf(kLastWords, HasSubstr("[rank 1] all_gather(h.3): the group has failed: [rank 0] ")));
}

// Rank 1 is busy elsewhere until the others have given up.
TEST(NcclWaits, ARankThatDoesNotComeIsNamedAndToldLater) {
  std::mutex mutex;
  std::vector<std::string> lines;
  std::latch gave_up(2);
  const auto ends = nccl_ranks(3, [&](Communicator& communicator, Device& device) {
    const auto barrier = [&](const std::string& unit) {
      communicator.barrier(device.communication(), {unit});
      device.communication().synchronize();
    };
    communicator.set_step(4);
    barrier("first");
    communicator.set_wait_limits(
        {.warning = 200ms, .timeout = 1000ms, .warn = [&](const std::string& line) {
           const std::scoped_lock lock(mutex);
           lines.push_back(line);
         }});
    if (communicator.rank() == 1) {
      gave_up.wait();
      return barrier("later");
    }
    const std::string message = error_of([&] { barrier("second"); });
    gave_up.count_down();
    fail("{}", message);
  });
  const std::string line = "] barrier(second), step 4: waiting for 1 s for rank 1 (on host ";
  for (const std::size_t rank : {0U, 2U}) {
    EXPECT_THAT(ends[rank], AllOf(StartsWith(fmt::format("[rank {}] barrier(second)", rank)),
                                  HasSubstr(line), HasSubstr(": unknown), the timeout")));
  }
  EXPECT_THAT(ends[1], AllOf(StartsWith("[rank 1] barrier(later): the group has failed: [rank "),
                             HasSubstr(line)));
  EXPECT_THAT(lines, AllOf(::testing::Not(::testing::IsEmpty()),
                           Each(AllOf(HasSubstr("] barrier(second), step 4: waiting for 0."),
                                      HasSubstr(" s for rank 1 (on host ")))));
  EXPECT_EQ(fake_nccl::alive(), 0);
}

// Nobody is waited for while nobody has called more than the others.
TEST(NcclWaits, RanksThatAreQuietTogetherWaitForNobody) {
  const auto ends = nccl_ranks(2, [](Communicator& communicator, Device& device) {
    communicator.set_wait_limits({.warning = 400ms, .timeout = 800ms, .warn = [](const auto& line) {
                                    ADD_FAILURE() << line;
                                  }});
    communicator.barrier(device.communication(), {"first"});
    std::this_thread::sleep_for(3000ms);  // the watch looks twice before a wait begins
    communicator.barrier(device.communication(), {"second"});
  });
  EXPECT_THAT(ends, Each("no error"));
}

// Each rank registers memory alone: that makes no other rank late, and hides none that is. Rank 2
// is busy elsewhere until the others have given up.
TEST(NcclWaits, MemoryThatARankRegistersIsNoCallOfItsGroup) {
  std::mutex mutex;
  std::vector<std::string> lines;
  std::latch gave_up(2);
  const auto ends = nccl_ranks(3, [&](Communicator& communicator, Device& device) {
    const int rank = communicator.rank();
    communicator.set_wait_limits(
        {.warning = 200ms, .timeout = 1000ms, .warn = [&](const std::string& line) {
           const std::scoped_lock lock(mutex);
           lines.push_back(line);
         }});
    communicator.barrier(device.communication(), {"first"});
    Buffer registered;
    if (rank != 1) {
      registered = communicator.allocate(device, std::int64_t{1} << 20, DType::fp32,
                                         MemoryClass::other, "of this rank alone");
    }
    if (rank == 2) {
      gave_up.wait();
      return;
    }
    const std::string message = error_of([&] {
      communicator.barrier(device.communication(), {"second"});
      device.communication().synchronize();
    });
    gave_up.count_down();
    fail("{}", message);
  });
  EXPECT_THAT(fake_nccl::posted(0), ::testing::Contains("Register 4194304"));
  EXPECT_THAT(fake_nccl::posted(2), ::testing::Contains("Register 4194304"));
  const std::string line = "] barrier(second): waiting for ";
  for (const std::size_t rank : {0U, 1U}) {
    EXPECT_THAT(ends[rank], AllOf(HasSubstr(line + "1 s for rank 2 (on host "),
                                  ::testing::Not(HasSubstr(" and rank "))));
  }
  EXPECT_THAT(lines,
              AllOf(::testing::Not(::testing::IsEmpty()),
                    Each(AllOf(HasSubstr(line + "0."), HasSubstr(" s for rank 2 (on host ")))));
}

TEST(NcclFailures, ARefusedCallNamesItsPlace) {
  EXPECT_THAT(error_of([] { nccl::check(ncclInvalidUsage, "[rank 1] barrier(x)"); }),
              AllOf(StartsWith("[rank 1] barrier(x): NCCL: invalid usage (at failures_test.cpp:"),
                    HasSubstr("NCCL_DEBUG=INFO tells more")));
  nccl::check(ncclInProgress, "goes on");
}

}  // namespace
}  // namespace zero::test
