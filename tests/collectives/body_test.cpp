// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#include "tests/collectives/body.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "collectives/backends.h"
#include "tests/case_names.h"
#include "tests/collectives/messages.h"
#include "tests/collectives/queue_device.h"
#include "tests/support/test_device.h"

namespace zero::test {
namespace {

using Policy = testing::StreamOrder::Policy;

class LocalCollectives : public ::testing::TestWithParam<std::tuple<int, std::int64_t>> {};

TEST_P(LocalCollectives, MoveAndReduceByTheirContract) {
  const auto [world, total] = GetParam();
  local::run(world, [total = total](Communicator& communicator) {
    const auto device = cpu::open();
    check_everything(communicator, *device, total);
  });
}

INSTANTIATE_TEST_SUITE_P(Worlds, LocalCollectives,
                         ::testing::Combine(::testing::Values(1, 2, 3, 4, 5, 7, 8, 9),
                                            ::testing::Values(0, 1, 3, 64, 1000)),
                         zero::testing::kCaseName);
INSTANTIATE_TEST_SUITE_P(Large, LocalCollectives,
                         ::testing::Combine(::testing::Values(3, 8),
                                            ::testing::Values(10007, 1 << 20)),
                         zero::testing::kCaseName);

class LocalGroups : public ::testing::TestWithParam<int> {};

TEST_P(LocalGroups, SplitStoreExchangeAndBucketsWork) {
  local::run(GetParam(), [](Communicator& communicator) {
    const auto device = cpu::open();
    const Rank rank(communicator, *device);
    check_split(rank);
    check_store(rank);
    check_exchange(communicator, *device);
    check_buckets(rank);
  });
}

INSTANTIATE_TEST_SUITE_P(Worlds, LocalGroups, ::testing::Values(1, 2, 3, 4, 5, 7, 8, 9),
                         zero::testing::kCaseName);

class StreamOrders : public ::testing::TestWithParam<int> {};

TEST_P(StreamOrders, AnyLegalOrderGivesTheSameValues) {
  for (std::uint64_t seed = 0; seed < 8; ++seed) {
    local::run(GetParam(), [seed](Communicator& communicator) {
      const auto device =
          testing::open({.policy = Policy::seeded,
                         .seed = seed * 64 + static_cast<std::uint64_t>(communicator.rank())});
      check_everything(communicator, *device, 100);
      check_exchange(communicator, *device);
      check_split({communicator, *device});
    });
  }
}

TEST_P(StreamOrders, AsLateAsPossibleGivesTheSameValues) {
  local::run(GetParam(), [](Communicator& communicator) {
    const auto device = testing::open({.policy = Policy::lazy});
    check_everything(communicator, *device, 100);
    check_exchange(communicator, *device);
    check_split({communicator, *device});
  });
}

TEST_P(StreamOrders, MemoryThatTheHostCannotSeeHoldsTheSameValues) {
  local::run(GetParam(), [](Communicator& communicator) {
    const auto device = testing::open({.policy = Policy::lazy, .memory = MemorySpace::device});
    check_everything(communicator, *device, 100);
    check_exchange(communicator, *device);
    check_split({communicator, *device});
  });
}

INSTANTIATE_TEST_SUITE_P(Worlds, StreamOrders, ::testing::Values(1, 2, 5),
                         zero::testing::kCaseName);

/// Devices that have queues of their own.
class Queues : public ::testing::TestWithParam<int> {};

TEST_P(Queues, AreFilledByTheHostsThatMeet) {
  local::run(GetParam(), [](Communicator& communicator) {
    const auto device = open_queue_device(static_cast<unsigned>(communicator.rank()));
    for (const std::int64_t total : {0, 1, 100, 1000}) {
      check_everything(communicator, *device, total);
    }
    const Rank rank(communicator, *device);
    check_split(rank);
    check_buckets(rank);
    check_exchange(communicator, *device);
  });
}

INSTANTIATE_TEST_SUITE_P(Worlds, Queues, ::testing::Values(1, 2, 3, 4, 5),
                         zero::testing::kCaseName);

TEST(Queue, AStrayRankEndsTheCallOfAll) {
  const auto messages = messages_of(3, [](Communicator& communicator, Device&) {
    const auto device = open_queue_device(0);
    const Buffer values = device->allocate(3, DType::i64, MemoryClass::other, "values");
    const Tag tag{"h.0", {}};
    if (communicator.rank() == 2) return communicator.barrier(device->communication(), tag);
    communicator.all_reduce(values.view(), ReduceOp::sum, device->communication(), tag);
  });
  const std::string advice = ": one of them left a call out or took another branch";
  EXPECT_EQ(messages[0], "[rank 0] all_reduce(h.0) met barrier(h.0) of rank 2" + advice);
  EXPECT_EQ(messages[1], "[rank 1] all_reduce(h.0) met barrier(h.0) of rank 2" + advice);
  EXPECT_THAT(messages[2], ::testing::HasSubstr("[rank 2] barrier(h.0) met all_reduce(h.0)"));
}

TEST(Queue, TakesNoValuesOfTheHost) {
  const auto messages = messages_of(2, [](Communicator& communicator, Device&) {
    const auto device = open_queue_device(0);
    std::vector<std::int64_t> values(4);
    communicator.all_reduce(View::of(std::span(values)), ReduceOp::sum, device->communication(),
                            {"h.0", {}});
  });
  EXPECT_THAT(messages[1],
              ::testing::HasSubstr("[rank 1] all_reduce(h.0): a view is of host memory, expected "
                                   "memory of the device whose stream it is"));
}

TEST(LocalRun, ManyMoreRanksThanCoresMeet) {
  local::run(64, [](Communicator& communicator) {
    const auto device = cpu::open();
    const Rank rank(communicator, *device);
    for (int i = 0; i < 20; ++i) {
      rank.communicate([&](Stream& stream) { communicator.barrier(stream, {"many"}); });
    }
    rank.read({});
  });
}

}  // namespace
}  // namespace zero::test
