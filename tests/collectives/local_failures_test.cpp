// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>

#include "collectives/store.h"
#include "tests/collectives/messages.h"
#include "tests/support/test_device.h"

namespace zero::test {
namespace {

using ::testing::AllOf;
using ::testing::Each;
using ::testing::HasSubstr;
using ::testing::MatchesRegex;
using ::testing::StartsWith;

/// Behind two calls of different names.
const std::string kAdvice = ": one of them left a call out or took another branch";

void barrier(Communicator& communicator, Device& device, const std::string& purpose) {
  communicator.barrier(device.communication(), {purpose});
}

TEST(LocalMismatch, NamesBothOperationsAndTheRank) {
  const auto messages = messages_of(4, [](Communicator& comm, Device& device) {
    std::vector<float> values(4);
    const Slices full = Slices::even(View::of(std::span(values)), 4);
    Stream& stream = device.communication();
    if (comm.rank() == 3) {
      comm.reduce_scatter(full, {{}, full.of(3), nullptr}, {}, stream, {"h.7"});
    } else {
      comm.all_gather(full.of(comm.rank()), full, stream, {"h.8"});
    }
    stream.synchronize();
  });
  EXPECT_EQ(messages[0], "[rank 0] all_gather(h.8) met reduce_scatter(h.7) of rank 3" + kAdvice);
  EXPECT_EQ(messages[1], "[rank 1] all_gather(h.8) met reduce_scatter(h.7) of rank 3" + kAdvice);
  EXPECT_EQ(messages[2], "[rank 2] all_gather(h.8) met reduce_scatter(h.7) of rank 3" + kAdvice);
  EXPECT_THAT(
      messages[3],
      MatchesRegex(".rank 3. reduce_scatter.h.7. met all_gather.h.8. of rank [012]" + kAdvice));
}

TEST(LocalMismatch, NamesSizesOfCommonMemory) {
  const auto messages = messages_of(2, [](Communicator& comm, Device& device) {
    comm.allocate_shared(device, 100 + comm.rank(), DType::u8, MemoryClass::other, "h");
  });
  EXPECT_THAT(messages[0], HasSubstr("[rank 0] allocate_shared(h)"));
  EXPECT_THAT(messages[0], AllOf(HasSubstr("100"), HasSubstr("101")));
}

TEST(LocalMismatch, GathersToOnePlaceOfCommonMemoryOrToNone) {
  const auto messages = messages_of(3, [](Communicator& comm, Device& device) {
    const SharedBuffer made =
        comm.allocate_shared(device, 30, DType::u8, MemoryClass::other, "common");
    const Buffer own = device.allocate(30, DType::u8, MemoryClass::other, "own");
    const Slices full = Slices::even(comm.rank() == 1 ? own.view() : made.buffer.view(), 3);
    comm.all_gather(full.of(comm.rank()), full, device.communication(), {"h.0"});
    device.communication().synchronize();
  });
  for (const std::string& message : messages) {
    EXPECT_THAT(message, HasSubstr("all_gather(h.0): the ranks gather to different places"));
  }
}

TEST(LocalMismatch, NamesBothUnits) {
  const auto messages = messages_of(2, [](Communicator& comm, Device& device) {
    barrier(comm, device, comm.rank() == 0 ? "h.0" : "h.1");
  });
  EXPECT_EQ(messages[0], "[rank 0] barrier(h.0) met barrier(h.1) of rank 1" + kAdvice);
  EXPECT_EQ(messages[1], "[rank 1] barrier(h.1) met barrier(h.0) of rank 0" + kAdvice);
}

TEST(LocalMismatch, NamesBothDtypesOpsAndRoots) {
  auto messages = messages_of(2, [](Communicator& comm, Device& device) {
    std::vector<double> values(2);
    View view = View::of(std::span(values));
    if (comm.rank() == 1) view = view.reinterpret(DType::fp32, 2);
    comm.all_reduce(view, ReduceOp::sum, device.communication(), {"norm"});
    device.communication().synchronize();
  });
  EXPECT_EQ(messages[0],
            "[rank 0] all_reduce(norm) (fp64, sum) met all_reduce(norm) (fp32, sum) of rank 1");
  messages = messages_of(2, [](Communicator& comm, Device& device) {
    std::vector<double> values(2);
    comm.all_reduce(View::of(std::span(values)), comm.rank() == 0 ? ReduceOp::max : ReduceOp::min,
                    device.communication(), {"norm"});
    device.communication().synchronize();
  });
  EXPECT_EQ(messages[1],
            "[rank 1] all_reduce(norm) (fp64, min) met all_reduce(norm) (fp64, max) of rank 0");
  messages = messages_of(2, [](Communicator& comm, Device& device) {
    std::vector<float> values(2);
    comm.broadcast(View::of(std::span(values)), comm.rank(), device.communication(), {"seed"});
    device.communication().synchronize();
  });
  EXPECT_EQ(messages[0],
            "[rank 0] broadcast(seed) (fp32, root 0) met broadcast(seed) (fp32, root 1) of rank 1");
}

TEST(LocalMismatch, NamesBothCounts) {
  const auto messages = messages_of(2, [](Communicator& comm, Device& device) {
    std::vector<float> values(20);
    const Slices full{.buffer = View::of(std::span(values)),
                      .ranges = {{0, 4}, {4, 5 + comm.rank()}}};
    comm.all_gather(full.of(comm.rank()), full, device.communication(), {"h.0"});
    device.communication().synchronize();
  });
  EXPECT_EQ(messages[0], "[rank 0] all_gather(h.0): 5 elements in slice 1 met 6 of rank 1");
  EXPECT_EQ(messages[1], "[rank 1] all_gather(h.0): 6 elements in slice 1 met 5 of rank 0");
}

TEST(LocalMismatch, AllToAllComparesPairs) {
  const auto messages = messages_of(3, [](Communicator& comm, Device& device) {
    std::vector<float> values(40);
    const View view = View::of(std::span(values));
    Slices send = Slices::even(view.slice(0, 9), 3);
    const Slices receive = Slices::even(view.slice(20, 9), 3);
    if (comm.rank() == 2) send.ranges[0].count = 2;
    comm.all_to_all(send, receive, device.communication(), {"tokens"});
    device.communication().synchronize();
  });
  EXPECT_EQ(messages[0],
            "[rank 0] all_to_all(tokens): rank 2 sends 2 elements, expected receive slice 2's 3");
  EXPECT_EQ(messages[2],
            "[rank 2] all_to_all(tokens): rank 0 expects 3 elements, send slice 0 has 2");
  EXPECT_THAT(messages[1], AllOf(StartsWith("[rank 1] all_to_all(tokens): the group has failed: "),
                                 HasSubstr("all_to_all(tokens): rank ")));
}

TEST(LocalMismatch, EndsTheGroup) {
  const auto messages = messages_of(2, [](Communicator& comm, Device& device) {
    const std::string first = error_of([&] {
      barrier(comm, device, comm.rank() == 0 ? "a" : "b");
      device.communication().synchronize();
    });
    EXPECT_NE(first, "no error");
    const auto fresh = cpu::open();  // the failed stream drops work
    barrier(comm, *fresh, "later");
    fresh->communication().synchronize();
  });
  EXPECT_THAT(messages, Each(HasSubstr("barrier(later): the group has failed: [rank ")));
}

TEST(LocalLeave, ARankThatThrowsReleasesTheOthersAndIsNamed) {
  std::vector<std::string> messages(3);
  const auto run = [&] {
    local::run(3, [&](Communicator& comm) {
      if (comm.rank() == 2) throw std::runtime_error("no more data");
      const auto device = cpu::open();
      messages[static_cast<std::size_t>(comm.rank())] = error_of([&] {
        barrier(comm, *device, "h.0");
        device->communication().synchronize();
      });
    });
  };
  EXPECT_THROW(
      {
        try {
          run();
        } catch (const std::runtime_error& error) {
          EXPECT_STREQ(error.what(), "no more data");
          throw;
        }
      },
      std::runtime_error);
  EXPECT_THAT(messages[0], StartsWith("[rank 0] barrier(h.0): rank 2 left before its first "
                                      "collective: it threw \"no more data\""));
  EXPECT_THAT(messages[1], StartsWith("[rank 1] barrier(h.0): rank 2 left before its first "
                                      "collective: it threw \"no more data\""));
}

TEST(LocalLeave, ARankThatReturnsEarlyReleasesTheOthersAndIsNamed) {
  for (const auto policy :
       {testing::StreamOrder::Policy::lazy, testing::StreamOrder::Policy::seeded}) {
    std::string message;
    local::run(2, [&](Communicator& comm) {
      const auto device = testing::open({.policy = policy, .seed = 3});
      barrier(comm, *device, "first");
      device->communication().synchronize();
      if (comm.rank() == 1) return;
      message = error_of([&] {
        barrier(comm, *device, "second");
        device->communication().synchronize();
      });
    });
    EXPECT_EQ(message,
              "[rank 0] barrier(second): rank 1 left after barrier(first): its body returned");
  }
}

TEST(LocalLeave, GroupsOfASplitNameTheRankOfTheJobToo) {
  std::string message;
  local::run(4, [&](Communicator& comm) {
    const auto group = comm.split(comm.rank() / 2, 0);
    if (comm.rank() == 3) return;
    if (comm.rank() != 2) return;
    const auto device = cpu::open();
    message = error_of([&] {
      barrier(*group, *device, "x");
      device->communication().synchronize();
    });
  });
  EXPECT_EQ(message,
            "[rank 0] barrier(x): rank 1 (rank 3 of the job) left before its first collective: "
            "its body returned");
}

TEST(LocalLeave, TheStoreStopsWaitingForARankThatThrew) {
  std::string message;
  EXPECT_ANY_THROW(local::run(2, [&](Communicator& comm) {
    if (comm.rank() == 1) fail("boom");
    message = error_of([&] { static_cast<void>(comm.store().get("key", std::chrono::hours(1))); });
  }));
  EXPECT_EQ(message, "store: nobody will set key: rank 1 left: it threw \"boom\"");
}

// Rank 0 reduces into the middle of what rank 1 gives it, which only the two together can see.
TEST(LocalFailure, ARankThatFailsInsideACollectiveEndsItForAll) {
  std::vector<float> shared(96);
  const auto messages = messages_of(2, [&](Communicator& comm, Device& device) {
    std::vector<float> own(64);
    const bool first = comm.rank() == 0;
    const View memory = first ? View::of(std::span(own)) : View::of(std::span(shared).first(64));
    const Slices full = Slices::even(memory, 2);
    const View destination = first ? View::of(std::span(shared).subspan(16, 32)) : full.of(1);
    comm.reduce_scatter(full, {{}, destination, nullptr}, {}, device.communication(), {"h.0"});
    device.communication().synchronize();
  });
  EXPECT_NE(messages[0], "no error");
  EXPECT_THAT(messages[1], StartsWith("[rank 1] reduce_scatter(h.0): the group has failed: rank 0 "
                                      "failed in reduce_scatter(h.0): "));
}

TEST(LocalRun, NeedsARank) {
  EXPECT_EQ(error_of([] { local::run(0, [](Communicator&) {}); }),
            "local::run with 0 ranks; expected at least 1");
}

}  // namespace
}  // namespace zero::test
