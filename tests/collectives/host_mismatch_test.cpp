// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
// What ranks of one host say where their calls differ.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "collectives/call.h"
#include "tests/collectives/host_ranks.h"

namespace zero::test {
namespace {

using ::testing::Each;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

TEST(HostMismatch, NamesBothCallsOnEveryRank) {
  std::atomic<int> knows{0};
  const auto ends = HostRanks(3).run([&](HostTransport& transport, host::Memory&, int rank) {
    std::vector<float> values(3);
    const Slices full = Slices::even(View::of(std::span(values)), 3);
    try {
      if (rank == 2) {
        transport.reduce_scatter(full, {{}, full.of(2), nullptr}, {}, "h.7");
      } else {
        transport.all_gather(full.of(rank), full, "h.8");
      }
    } catch (const CallsDiffer& differ) {
      if (differ.odd() == std::vector{2}) ++knows;
      throw;
    }
  });
  EXPECT_EQ(knows, 3) << "for programs";
  const std::string odd = "rank 2 calls reduce_scatter(h.7), the other 2 ranks all_gather(h.8)";
  EXPECT_THAT(ends, ElementsAre("[rank 0] " + odd, "[rank 1] " + odd, "[rank 2] " + odd));
}

TEST(HostMismatch, NamesDtypesOpsRootsAndCounts) {
  auto ends = HostRanks(2).run([](HostTransport& transport, host::Memory&, int rank) {
    std::vector<double> values(2);
    transport.all_reduce(View::of(std::span(values)), rank == 0 ? ReduceOp::max : ReduceOp::min,
                         "n");
  });
  EXPECT_EQ(ends[0], "[rank 0] all_reduce(n) (fp64, max) met all_reduce(n) (fp64, min) of rank 1");
  ends = HostRanks(2).run([](HostTransport& transport, host::Memory&, int rank) {
    std::vector<float> values(2);
    transport.broadcast(View::of(std::span(values)), rank, "seed");
  });
  EXPECT_EQ(ends[1],
            "[rank 1] broadcast(seed) (fp32, root 1) met broadcast(seed) (fp32, root 0) of rank 0");
  ends = HostRanks(2).run([](HostTransport& transport, host::Memory&, int rank) {
    std::vector<float> values(20);
    const Slices full{View::of(std::span(values)), {{0, 4}, {5, rank == 0 ? 5 : 6}}};
    transport.all_gather(full.of(rank), full, "h.0");
  });
  EXPECT_EQ(ends[0], "[rank 0] all_gather(h.0): 5 elements in slice 1 met 6 of rank 1");
}

TEST(HostMismatch, CallsRanksAsPeopleDo) {
  HostRanks ranks(2);
  ranks.call({4, 7});
  const auto ends = ranks.run([](HostTransport& transport, host::Memory&, int rank) {
    const Slices::Range all{0, 10 + rank};
    const HostTransport::CallSignature signature{.operation = Operation::broadcast,
                                                 .purpose = "seed",
                                                 .dtype = DType::u8,
                                                 .detail = 7,
                                                 .counts = {&all, 1}};
    transport.compare({.operation = Operation::barrier, .purpose = "start"});
    transport.compare(signature);
  });
  EXPECT_EQ(ends[0], "[rank 4] broadcast(seed): 10 elements in slice 0 met 11 of rank 7");
  EXPECT_EQ(ends[1], "[rank 7] broadcast(seed): 11 elements in slice 0 met 10 of rank 4");
  ranks.refuse(1, "memfd_create: Function not implemented");
  EXPECT_THAT(ranks.run([](HostTransport&, host::Memory&, int) {}),
              Each("rank 7: memfd_create: Function not implemented"));
}

TEST(HostMismatch, NamesNamesThatDifferWhereTheyAreCut) {
  const auto ends = HostRanks(2).run([](HostTransport& transport, host::Memory&, int rank) {
    transport.barrier(std::string(2000, 'x') + std::to_string(rank));
  });
  EXPECT_THAT(ends, Each(HasSubstr("the ranks' calls differ; check that all ranks make")));
}

TEST(HostMismatch, ComparesPairsOfAllToAll) {
  HostRanks ranks(3);
  ranks.call({4, 7, 9});
  const auto ends = ranks.run([](HostTransport& transport, host::Memory&, int rank) {
    std::vector<float> out(9);
    std::vector<float> in(9);
    Slices send = Slices::even(View::of(std::span(out)), 3);
    if (rank == 0) send.ranges[1].count = 2;
    transport.all_to_all(send, Slices::even(View::of(std::span(in)), 3), "h.0");
  });
  EXPECT_THAT(ends, ElementsAre("[rank 4] all_to_all(h.0): rank 7 expects 3 elements, send slice 1 "
                                "has 2",
                                "[rank 7] all_to_all(h.0): rank 4 sends 2 elements, expected "
                                "receive slice 0's 3",
                                "[rank 9] all_to_all(h.0): the group has failed: [rank 4] "
                                "all_to_all(h.0): rank 7 expects 3 elements, send slice 1 has 2"));
}

}  // namespace
}  // namespace zero::test
