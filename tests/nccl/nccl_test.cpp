// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
// NcclBackend does what every backend does, over a fake of NCCL's library.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <numeric>

#include "collectives/nccl/plan.h"
#include "tests/collectives/body.h"
#include "tests/errors.h"
#include "tests/nccl/ranks.h"
#include "tests/support/reference_sums.h"
#include "tests/support/test_device.h"

namespace zero::test {
namespace {

using nccl::kScratch;
using nccl::Sums;
using ::testing::Each;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::StartsWith;

class NcclCollectives : public ::testing::TestWithParam<int> {};

TEST_P(NcclCollectives, MoveAndReduceByTheirContract) {
  for (const std::int64_t total : {0, 1, 3, 64, 1000}) {
    EXPECT_THAT(nccl_ranks(GetParam(),
                           [total](Communicator& communicator, Device& device) {
                             check_everything(communicator, device, total);
                           }),
                Each("no error"));
  }
  EXPECT_EQ(fake_nccl::alive(), 0);
}

TEST_P(NcclCollectives, SplitStoreExchangeAndBucketsWork) {
  EXPECT_THAT(nccl_ranks(GetParam(),
                         [](Communicator& communicator, Device& device) {
                           const Rank rank(communicator, device);
                           check_split(rank);
                           check_store(rank);
                           check_exchange(communicator, device);
                           check_buckets(rank);
                         }),
              Each("no error"));
  EXPECT_EQ(fake_nccl::alive(), 0);
}

INSTANTIATE_TEST_SUITE_P(Worlds, NcclCollectives, ::testing::Values(1, 2, 3, 5, 8));

TEST(Nccl, ValuesBeyondTheScratchTravelInParts) {
  EXPECT_THAT(nccl_ranks(3,
                         [](Communicator& communicator, Device& device) {
                           check_moves({communicator, device}, 5 << 20);
                           check_all_reduce({communicator, device}, 5 << 20);
                         }),
              Each("no error"));
}

TEST(Nccl, AnyLegalOrderOfStreamsGivesTheSameValues) {
  using Policy = testing::StreamOrder::Policy;
  for (const Policy policy : {Policy::lazy, Policy::seeded}) {
    const auto ends = store_ranks(3, [policy](const StoreRank& self) {
      const auto device =
          testing::open({.policy = policy, .seed = static_cast<std::uint64_t>(self.rank)});
      const auto communicator = nccl::world(self, *device, {});
      check_everything(*communicator, *device, 100);
      check_split({*communicator, *device});
      check_exchange(*communicator, *device);
    });
    EXPECT_THAT(ends, Each("no error"));
  }
}

/// Sums of wild values, of the given dtype, against the tree.
void check_tree(const Rank& rank, Cut cut, DType dtype) {
  const Plan shape = plan(cut, 300, rank.world());
  const Buffer values = rank.allocate(shape.buffer, dtype);
  const Slices full{.buffer = values.view(), .ranges = shape.ranges};
  const auto [begin, count] = full.ranges[static_cast<std::size_t>(rank.rank())];
  const Buffer sum = rank.allocate(count, DType::fp32);
  const Buffer workspace = rank.allocate(rank.comm.reduce_scatter_workspace(full), dtype);
  rank.fill(values.view(), [&](std::int64_t i) { return wild(rank.rank(), i); });
  rank.communicate([&](Stream& stream) {
    rank.comm.reduce_scatter(full, {{}, sum.view(), nullptr}, workspace.view(), stream, {"sum"});
  });
  const auto sums = rank.read(sum.view());
  for (std::int64_t i = 0; i < count; ++i) {
    std::vector<float> inputs;
    for (int peer = 0; peer < rank.world(); ++peer) {
      inputs.push_back(static_cast<float>(rounded(wild(peer, begin + i), dtype)));
    }
    expect(static_cast<float>(sums[static_cast<std::size_t>(i)]) == testing::tree_sum(inputs),
           "the tree's bits");
  }
}

TEST(Nccl, ManyRanksSumByHalvingWithTheTreesBits) {
  const auto body = [](Communicator& communicator, Device& device) {
    for (const DType dtype : {DType::fp32, DType::bf16}) {
      check_tree({communicator, device}, Cut::even, dtype);
      check_tree({communicator, device}, Cut::uneven, dtype);
    }
  };
  EXPECT_THAT(nccl_ranks(64, body), Each("no error"));
  for (const std::string& call : fake_nccl::posted(5)) {
    constexpr std::array kPartners{", 4", ", 7", ", 1", ", 13", ", 21", ", 37"};
    EXPECT_TRUE(std::ranges::any_of(kPartners, [&](const char* partner) {
      return call.ends_with(partner);
    })) << call;
  }
}

TEST(Nccl, AllRanksCallAlike) {
  nccl_ranks(4, [](Communicator& communicator, Device& device) {
    check_everything(communicator, device, 1000);
    check_split({communicator, device});
  });
  const auto collectives = [](int rank) {
    auto calls = fake_nccl::posted(rank);
    std::erase_if(calls, [](const std::string& call) {
      return call.starts_with("Send") || call.starts_with("Recv");
    });
    return calls;
  };
  EXPECT_GT(collectives(0).size(), 50U);
  // Behind the split's parts the ranks' ways part; before it they are one.
  for (int rank = 1; rank < 4; ++rank) {
    const auto first = collectives(0);
    const auto theirs = collectives(rank);
    EXPECT_TRUE(std::equal(first.begin(), first.begin() + 50, theirs.begin())) << rank;
  }
}

TEST(Nccl, FastSumsAreTheLibrarys) {
  const auto body = [](Communicator& communicator, Device& device) {
    const Rank rank(communicator, device);
    EXPECT_EQ(communicator.backend(), BackendKind::nccl_fast);
    for (const Cut cut : {Cut::even, Cut::uneven, Cut::strided}) {
      const Plan shape = plan(cut, 500, communicator.size());
      const Buffer values = rank.allocate(shape.buffer, DType::bf16);
      const Slices full{.buffer = values.view(), .ranges = shape.ranges};
      const std::int64_t count = full.of(rank.rank()).count();
      const Buffer sum = rank.allocate(count, DType::fp32);
      const Buffer workspace =
          rank.allocate(communicator.reduce_scatter_workspace(full), DType::bf16);
      EXPECT_EQ(workspace.view().count(), full.largest());
      rank.fill(values.view(), [&](std::int64_t i) { return static_cast<double>(i % 8); });
      rank.communicate([&](Stream& stream) {
        communicator.reduce_scatter(full, {{}, sum.view(), nullptr}, workspace.view(), stream,
                                    {"fast"});
      });
      const auto sums = rank.read(sum.view());
      for (std::int64_t i = 0; i < count; ++i) {
        const auto at = full.ranges[static_cast<std::size_t>(rank.rank())].begin + i;
        expect(sums[static_cast<std::size_t>(i)] ==
                   static_cast<double>((at % 8) * communicator.size()),
               "the sum of small whole numbers");
      }
    }
    const Buffer ones = rank.allocate(1000, DType::fp32);
    rank.fill(ones.view(), [](std::int64_t) { return 1.0; });
    rank.communicate([&](Stream& stream) {
      communicator.all_reduce(ones.view(), ReduceOp::sum, stream, {"fast"});
    });
    expect(rank.read(ones.view())[999] == communicator.size(), "all ranks' ones");
  };
  EXPECT_THAT(nccl_ranks(3, body, {.sums = Sums::fast}), Each("no error"));
}

TEST(Nccl, SaysWhoIsWhereAndHowValuesTravel) {
  EXPECT_THAT(nccl_ranks(3,
                         [](Communicator& communicator, Device&) {
                           EXPECT_EQ(communicator.backend(), BackendKind::nccl);
                           EXPECT_EQ(communicator.local_size(), 3);
                           EXPECT_EQ(communicator.local_rank(), communicator.rank());
                           EXPECT_EQ(communicator.description(), "NCCL 2.28.3, exact sums");
                         }),
              Each("no error"));
  EXPECT_TRUE(nccl::available());
  EXPECT_EQ(nccl::version(), "2.28.3");
}

/// Bytes of all classes.
std::int64_t held(Device& device) {
  const BytesByClass bytes = device.ledger().snapshot().current;
  return std::accumulate(bytes.begin(), bytes.end(), std::int64_t{0});
}

TEST(Nccl, LargeBuffersAreTheLibrarysAndCharged) {
  EXPECT_THAT(nccl_ranks(2,
                         [](Communicator& communicator, Device& device) {
                           auto buffer = communicator.allocate(device, 1 << 20, DType::fp32,
                                                               MemoryClass::gathered, "window");
                           const void* const memory = buffer.view().data();
                           EXPECT_TRUE(fake_nccl::allocated(memory));
                           EXPECT_EQ(device.ledger().snapshot().current_of(MemoryClass::gathered),
                                     std::int64_t{4} << 20);
                           buffer = Buffer();
                           EXPECT_EQ(held(device), kScratch);
                           EXPECT_EQ(device.device_bytes().adopted, std::int64_t{4} << 20);
                         }),
              Each("no error"));
  EXPECT_THAT(fake_nccl::posted(1), ElementsAre("Register 4194304", "Deregister"));
}

TEST(Nccl, AScratchIsChargedForGroupsOfSeveral) {
  EXPECT_THAT(
      nccl_ranks(3,
                 [](Communicator& communicator, Device& device) {
                   EXPECT_EQ(held(device), kScratch);
                   const auto part = communicator.split(communicator.rank() / 2, 0);
                   EXPECT_EQ(held(device), (communicator.rank() < 2 ? 2 : 1) * kScratch);
                   const Buffer own =
                       part->allocate(device, 3 << 20, DType::u8, MemoryClass::gathered, "window");
                   EXPECT_EQ(fake_nccl::allocated(own.view().data()), communicator.rank() < 2);
                 }),
      Each("no error"));
}

/// What the ranks post for symmetric memory, of which the first rank asks `count` more values of.
std::vector<std::string> symmetric_memory(const fake_nccl::Rank& setup, std::int64_t count = 0) {
  return store_ranks(3, [&](const StoreRank& self) {
    fake_nccl::rank() = setup;
    const auto device = cpu::open();
    const auto communicator = nccl::world(self, *device, {});
    const auto allocate = [&](std::int64_t values) {
      return communicator->allocate_symmetric(*device, values, DType::fp32, MemoryClass::gathered,
                                              "windows");
    };
    const Buffer small = allocate(100);
    EXPECT_FALSE(fake_nccl::allocated(small.view().data()));
    const Buffer large = allocate((1 << 20) + (self.rank == 0 ? count : 0));
    EXPECT_TRUE(fake_nccl::allocated(large.view().data()));
    // Half of it, at one offset on all ranks.
    const Slices full = Slices::even(large.slice(1 << 18, 3 << 16), 3);
    device->kernels().zero(device->communication(), full.buffer);
    communicator->all_gather(full.of(self.rank), full, device->communication(), {"h.0"});
    device->communication().synchronize();
  });
}

TEST(Nccl, SymmetricMemoryIsInAWindowOfAllRanks) {
  EXPECT_THAT(symmetric_memory({}), Each("no error"));
  for (int rank = 0; rank < 3; ++rank) {
    EXPECT_THAT(fake_nccl::posted(rank), ElementsAre(StartsWith("Window 4194304 "),
                                                     StartsWith("AllGather"), "WindowDeregister"));
  }
  EXPECT_EQ(fake_nccl::alive(), 0);
}

// A block of GPT-2 124M over 8 ranks: less than a page.
TEST(Nccl, SymmetricMemoryOfLessThanAPageIsInAWindowToo) {
  EXPECT_THAT(nccl_ranks(2,
                         [](Communicator& communicator, Device& device) {
                           const Buffer shard = communicator.allocate_symmetric(
                               device, 885'000, DType::bf16, MemoryClass::parameters, "h.0");
                           EXPECT_TRUE(fake_nccl::allocated(shard.view().data()));
                           EXPECT_EQ(device.device_bytes().adopted, std::int64_t{2} << 20);
                         }),
              Each("no error"));
  EXPECT_THAT(fake_nccl::posted(1), ElementsAre(StartsWith("Window 1770000 "), "WindowDeregister"));
}

TEST(Nccl, CopyEnginesGatherWhereTheLibraryDoesNotHangWithThem) {
  constexpr int kPolicyZero = 2;  // NCCL_CTA_POLICY_ZERO, of 2.28
  for (const int version : {23102, 23101, 22803, 22707}) {
    EXPECT_THAT(store_ranks(2,
                            [&](const StoreRank& self) {
                              fake_nccl::rank() = {.version = version};
                              const auto device = cpu::open();
                              const auto communicator = nccl::world(self, *device, {});
                              EXPECT_EQ(fake_nccl::rank().cta_policy == kPolicyZero,
                                        version >= 23102);
                            }),
                Each("no error"));
  }
}

TEST(Nccl, WithoutWindowsSymmetricMemoryIsRegistered) {
  const auto registered = ElementsAre("Register 4194304", StartsWith("AllGather"), "Deregister");
  EXPECT_THAT(symmetric_memory({.version = 22605}), Each("no error"));
  EXPECT_THAT(fake_nccl::posted(2), registered);
  EXPECT_THAT(symmetric_memory({.has_windows = false}), Each("no error"));
  EXPECT_THAT(fake_nccl::posted(2), ElementsAre(StartsWith("Window 4194304 "), "Register 4194304",
                                                StartsWith("AllGather"), "Deregister"));
}

TEST(Nccl, SymmetricMemoryIsAsMuchOnAllRanks) {
  EXPECT_THAT(symmetric_memory({}, 3), Each(HasSubstr("symmetric memory for \"windows\": 104857")));
  EXPECT_EQ(fake_nccl::alive(), 0);
}

TEST(Nccl, HostMemoryIsRefusedWhereItCannotTravel) {
  EXPECT_THAT(nccl_ranks(2,
                         [](Communicator& communicator, Device& device) {
                           std::vector<float> values(4);
                           std::vector<float> received(4);
                           communicator.all_to_all(Slices::even(View::of(std::span(values)), 2),
                                                   Slices::even(View::of(std::span(received)), 2),
                                                   device.communication(), {"x"});
                         }),
              Each(HasSubstr("all_to_all(x): the values are in host memory; NCCL exchanges those "
                             "of cpu")));
  EXPECT_THAT(
      nccl_ranks(2,
                 [](Communicator& communicator, Device& device) {
                   std::vector<float> values(4);
                   std::vector<float> sum(2);
                   std::vector<float> workspace(2);
                   const Slices full = Slices::even(View::of(std::span(values)), 2);
                   communicator.reduce_scatter(full, {{}, View::of(std::span(sum)), nullptr},
                                               View::of(std::span(workspace)),
                                               device.communication(), {"x"});
                 }),
      Each(HasSubstr("reduce_scatter(x): the values are in host memory; NCCL sums those of cpu")));
}

}  // namespace
}  // namespace zero::test
