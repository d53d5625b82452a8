// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#include "base/host.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <csignal>
#include <cstring>
#include <numeric>

#include "base/checked_math.h"
#include "collectives/copy.h"
#include "tests/collectives/host_ranks.h"
#include "tests/errors.h"

namespace zero::test {
namespace {

using ::testing::Each;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::StartsWith;

constexpr std::int64_t kMiB = std::int64_t{1} << 20;

// Beside the page of the file's token.
std::int64_t bytes_held(const host::Region& region) {
  struct stat status {};
  fstat(region.file().descriptor(), &status);
  return status.st_blocks * 512 - page_bytes();
}

TEST(HostRegion, GivesRangesAndTheirMemoryBack) {
  host::Region region(64 * kMiB);
  EXPECT_EQ(region.allocate(64 * kMiB + 1), nullptr);
  void* const first = region.allocate(3 * kMiB);
  void* const second = region.allocate(5000);
  std::memset(first, 1, 3 * kMiB);
  std::memset(second, 2, 5000);
  EXPECT_EQ(region.offset_of(first, 3 * kMiB) % host::kHugePage, 0);
  EXPECT_GE(bytes_held(region), 3 * kMiB + round_up(5000, page_bytes()));
  region.free(first, 3 * kMiB);
  EXPECT_LE(bytes_held(region), 2 * page_bytes());
  EXPECT_EQ(static_cast<char*>(second)[4999], 2);
  EXPECT_EQ(region.allocate(64 * kMiB), nullptr);
  region.free(second, 5000);
  void* const whole = region.allocate(64 * kMiB);
  EXPECT_NE(whole, nullptr);  // all ranges are one again
  EXPECT_EQ(static_cast<char*>(whole)[0], 0);
  EXPECT_EQ(region.allocate(1), nullptr);
}

TEST(HostRegion, KnowsItsOwnAddresses) {
  host::Region region(4 * kMiB);
  auto* const data = static_cast<std::byte*>(region.allocate(kMiB));
  EXPECT_EQ(region.offset_of(data + 10, kMiB - 10), region.offset_of(data, kMiB) + 10);
  EXPECT_EQ(region.offset_of(data, 4 * kMiB + 1), -1);
  const int elsewhere = 0;
  EXPECT_EQ(region.offset_of(&elsewhere, sizeof elsewhere), -1);
}

TEST(HostRegion, SaysWhyTheSystemRefuses) {
  EXPECT_THAT(error_of([] { host::Region region(std::int64_t{1} << 60); }), HasSubstr("bytes"));
  EXPECT_THAT(error_of([] { host::Region region(std::int64_t{1} << 46); }),
              ::testing::AnyOf(HasSubstr("no address space for"), "no error"));
}

TEST(HostCopy, CopiesAnyLengthFromAndToAnyPlace) {
  std::vector<std::byte> from(100'000);
  for (std::size_t i = 0; i < from.size(); ++i) from[i] = static_cast<std::byte>(i * 7 + i / 256);
  for (const std::int64_t bytes : {0, 1, 63, 64, 4096, 16'384, 16'385, 70'001}) {
    for (const std::size_t begin : {0U, 1U, 40U, 64U}) {
      std::vector<std::byte> to(from.size());
      copy_around_caches(from.data() + 3, to.data() + begin, bytes);
      const auto end = begin + static_cast<std::size_t>(bytes);
      EXPECT_TRUE(std::equal(from.begin() + 3, from.begin() + 3 + bytes,
                             to.begin() + static_cast<std::ptrdiff_t>(begin)))
          << bytes << " bytes to " << begin;
      EXPECT_EQ(std::count(to.begin() + static_cast<std::ptrdiff_t>(end), to.end(), std::byte{}),
                static_cast<std::ptrdiff_t>(to.size() - end));
    }
  }
}

TEST(HostGroup, ARankWithoutMemoryIsARefusalForAll) {
  HostRanks ranks(3);
  ranks.refuse(1, "memfd_create: Function not implemented");
  EXPECT_THAT(ranks.run([](auto&, auto&, int) {}),
              Each("rank 1: memfd_create: Function not implemented"));
}

// Values that do not fit behind a header, in the region on even ranks and outside it on odd ones.
TEST(HostGroup, GathersFromAnyMemory) {
  constexpr std::int64_t kCount = 300'001;
  const auto ends = HostRanks(4).run([&](HostTransport& transport, host::Memory& memory, int rank) {
    std::vector<float> full(4 * kCount);
    std::vector<float> plain(kCount);
    const bool shared = rank % 2 == 0;
    void* const data = memory.region().allocate(kCount * 4);
    const View mine(shared ? data : plain.data(), kCount, DType::fp32, nullptr);
    std::iota(mine.as<float>().begin(), mine.as<float>().end(), static_cast<float>(rank));
    transport.all_gather(mine, Slices::even(View::of(std::span(full)), 4), "h.0");
    for (std::size_t i = 0; i < full.size(); ++i) {
      ZERO_CHECK(full[i] == static_cast<float>(i % kCount) + static_cast<float>(i / kCount),
                 "element {} is {}", i, full[i]);
    }
  });
  EXPECT_THAT(ends, Each("no error"));
}

/// Where rank r finds value i of rank p after a gather to shared memory.
enum class Layouts { alike, one_differs, one_is_plain };

std::string gathered_to(Layouts layouts) {
  constexpr std::int64_t kCount = 150'001;
  const auto ends = HostRanks(3).run([&](HostTransport& transport, host::Memory& memory, int rank) {
    constexpr std::int64_t kBytes = 3 * (kCount + 1) * 4;
    std::vector<float> plain(3 * (kCount + 1));
    const bool apart = layouts == Layouts::one_is_plain && rank == 1;
    void* const data = apart ? plain.data() : memory.region().allocate(kBytes);
    const std::int64_t gap = layouts == Layouts::one_differs && rank == 1 ? 1 : 0;
    Slices full{View(data, 3 * (kCount + 1), DType::fp32, nullptr), {}};
    for (int peer = 0; peer < 3; ++peer) full.ranges.push_back({peer * (kCount + gap), kCount});
    std::ranges::fill(full.buffer.as<float>(), -1.0F);
    std::ranges::fill(full.of(rank).as<float>(), static_cast<float>(rank));
    transport.all_gather(full.of(rank), full, "h.0");
    for (int peer = 0; peer < 3; ++peer) {
      ZERO_CHECK(
          std::ranges::all_of(full.of(peer).as<float>(),
                              [&](float value) { return value == static_cast<float>(peer); }),
          "slice {} is wrong on rank {}", peer, rank);
    }
    ZERO_CHECK(full.buffer.as<float>().back() == -1.0F, "rank {} was written beyond", rank);
  });
  return fmt::format("{}", fmt::join(ends, "; "));
}

TEST(HostGroup, GathersToWhereEachRankWantsIt) {
  constexpr auto kNoErrors = "no error; no error; no error";
  EXPECT_EQ(gathered_to(Layouts::alike), kNoErrors);
  EXPECT_EQ(gathered_to(Layouts::one_differs), kNoErrors);
  EXPECT_EQ(gathered_to(Layouts::one_is_plain), kNoErrors);
}

// A rank whose own slice is small has little to write, and waits for the large one.
TEST(HostGroup, AGatherEndsOnceTheLargestSliceIsThere) {
  constexpr std::int64_t kCount = 4 * kMiB;
  const auto ends = HostRanks(3).run([](HostTransport& transport, host::Memory& memory, int rank) {
    void* const data = memory.region().allocate((kCount + 2) * 4);
    const Slices full{View(data, kCount + 2, DType::fp32, nullptr), {{0, 1}, {1, 1}, {2, kCount}}};
    std::ranges::fill(full.of(rank).as<float>(), 1.0F);
    transport.all_gather(full.of(rank), full, "h.0");
    ZERO_CHECK(full.buffer.as<float>().back() == 1.0F, "rank {} went on too early", rank);
  });
  EXPECT_THAT(ends, Each("no error"));
}

TEST(HostRegion, LargeRangesLieAtTheStartAndSmallOnesAtTheEnd) {
  host::Region region(8 * kMiB);
  const auto* const start = region.data();
  EXPECT_EQ(region.allocate(100), start + 8 * kMiB - page_bytes());
  EXPECT_EQ(region.allocate(3 * kMiB), start);
  EXPECT_EQ(region.allocate(5000), start + 8 * kMiB - page_bytes() - round_up(5000, page_bytes()));
  EXPECT_EQ(region.allocate(2 * kMiB), start + 4 * kMiB);
}

TEST(HostPages, CountEachPageOnceUntilTheyAreGivenBack) {
  host::Pages pages(100);
  EXPECT_EQ(pages.add(250, 420), 300);
  EXPECT_EQ(pages.add(300, 310), 0);
  EXPECT_EQ(pages.add(900, 901), 100);
  EXPECT_EQ(pages.clear(), std::pair(std::int64_t{200}, std::int64_t{1000}));
  EXPECT_EQ(pages.clear(), std::pair(std::int64_t{0}, std::int64_t{0}));
  EXPECT_EQ(pages.add(250, 420), 300);
}

TEST(HostCommon, IsOneMemoryThatEachRankWritesItsPartOf) {
  constexpr std::int64_t kCount = 700'000;
  HostRanks ranks(3);
  const auto ends = ranks.run([&](HostTransport& transport, host::Memory&, int rank) {
    const auto mapping = transport.allocate_shared(3 * kCount, "", ranks.all_gather_texts_of(rank));
    const Slices full = Slices::even(View(mapping->data(), 3 * kCount, DType::u8, nullptr), 3);
    const auto expect_all = [&](int round) {
      for (int peer = 0; peer < 3; ++peer) {
        ZERO_CHECK(std::ranges::all_of(full.of(peer).as<std::uint8_t>(),
                                       [&](auto value) { return value == round + peer; }),
                   "slice {} of round {} is wrong on rank {}", peer, round, rank);
      }
    };
    std::vector<std::uint8_t> apart(kCount);
    for (int round = 10; round < 50; round += 10) {
      std::ranges::fill(apart, static_cast<std::uint8_t>(round + rank));
      transport.all_gather(View::of(std::span(apart)), full, "h.0");
      expect_all(round);
      transport.barrier("read");
      std::ranges::fill(full.of(rank).as<std::uint8_t>(),
                        static_cast<std::uint8_t>(round + rank + 5));
      transport.all_gather(full.of(rank), full, "h.0");
      expect_all(round + 5);
    }
  });
  EXPECT_THAT(ends, Each("no error"));
}

TEST(HostCommon, IsRefusedForAllOrSaysWhatDiffers) {
  HostRanks ranks(2);
  auto ends = ranks.run([&](HostTransport& transport, host::Memory&, int rank) {
    const auto mapping = transport.allocate_shared(4096, rank == 1 ? "it has no CPU" : "",
                                                   ranks.all_gather_texts_of(rank));
    ZERO_CHECK(mapping == nullptr, "rank {} has common memory", rank);
    transport.allocate_shared(100 + rank, "", ranks.all_gather_texts_of(rank));
  });
  EXPECT_THAT(ends, ElementsAre("[rank 0] allocate_shared: 100 bytes met 101 of rank 1",
                                "[rank 1] allocate_shared: 101 bytes met 100 of rank 0"));
  ends = ranks.run([&](HostTransport& transport, host::Memory&, int rank) {
    const auto mapping = transport.allocate_shared(4096, "", ranks.all_gather_texts_of(rank));
    const View part(mapping->data() + 64 * rank, 4000, DType::u8, nullptr);
    const Slices full = Slices::even(part, 2);
    transport.all_gather(full.of(rank), full, "h.0");
  });
  EXPECT_THAT(ends, Each(HasSubstr("all_gather(h.0): the ranks gather to different places")));
}

TEST(HostFailures, AFailedRankEndsTheGroup) {
  const auto ends = HostRanks(3).run([](HostTransport& transport, host::Memory&, int rank) {
    std::vector<float> values(30'000);
    std::vector<float> addend(1);
    const Slices full = Slices::even(View::of(std::span(values)), 3);
    ReduceEpilogue epilogue{{}, full.of(rank), nullptr};
    if (rank == 1) epilogue.addends.push_back(View::of(std::span(addend)));
    try {
      transport.reduce_scatter(full, epilogue, {}, "h.3");
    } catch (const Error&) {
      transport.barrier("again");
    }
  });
  EXPECT_THAT(ends[0], StartsWith("[rank 0] barrier(again): the group has failed: [rank 1] "
                                  "reduce_scatter(h.3): slice of"));
}

TEST(HostFailures, ARankThatFailsElsewhereIsHeardByThoseThatWait) {
  const auto ends = HostRanks(2).run([](HostTransport& transport, host::Memory&, int rank) {
    const HostTransport::CallSignature signature{.operation = Operation::all_gather,
                                                 .purpose = "h.0"};
    transport.compare(signature);
    if (rank == 1) return transport.give_up("[rank 1] out of luck");
    transport.compare(signature);
  });
  EXPECT_THAT(ends, ElementsAre("[rank 0] all_gather(h.0): the group has failed: [rank 1] out of "
                                "luck",
                                "no error"));
}

TEST(HostFailures, ALongReasonIsCut) {
  const auto ends = HostRanks(2).run([](HostTransport& transport, host::Memory&, int rank) {
    if (rank == 1) return transport.give_up(std::string(5000, 'x'));
    transport.barrier("h.0");
  });
  EXPECT_EQ(ends[0], "[rank 0] barrier(h.0): the group has failed: " + std::string(1023, 'x'));
}

TEST(HostFailures, ARankThatLeftIsNamed) {
  const auto ends = HostRanks(3).run([](HostTransport& transport, host::Memory&, int rank) {
    if (rank != 1) transport.barrier("end");
  });
  EXPECT_THAT(ends[0], StartsWith("[rank 0] barrier(end)"));
  EXPECT_THAT(ends[0] + ends[2], HasSubstr("rank 1 has left the group; its own message, or the "
                                           "system's log, says why"));
}

// Two processes that pass each other lines through a socket.
class Pair {
 public:
  Pair() { socketpair(AF_UNIX, SOCK_SEQPACKET, 0, ends_.data()); }

  HostTransport::Joined join(int rank) {
    return HostTransport::join(
        std::make_shared<host::Memory>(2), "", {rank, 2}, [this, rank](const std::string& mine) {
          const int end = ends_[static_cast<std::size_t>(rank)];
          std::array<char, 2048> theirs{};
          static_cast<void>(send(end, mine.data(), mine.size(), 0));
          const auto length = recv(end, theirs.data(), theirs.size(), 0);
          const std::string other(theirs.data(), static_cast<std::size_t>(length));
          return rank == 0 ? std::vector{mine, other} : std::vector{other, mine};
        });
  }

 private:
  std::array<int, 2> ends_{};
};

TEST(HostFailures, AKilledProcessIsNamed) {
  Pair pair;
  const pid_t child = fork();
  if (child == 0) {
    auto joined = pair.join(1);
    if (joined.transport) joined.transport->barrier("first");
    raise(SIGKILL);
  }
  auto joined = pair.join(0);
  ASSERT_EQ(joined.refusal, "");
  joined.transport->barrier("first");
  EXPECT_EQ(error_of([&] { joined.transport->barrier("second"); }),
            fmt::format("[rank 0] barrier(second): rank 1 (process {}) has ended; its own message, "
                        "or the system's log, says why",
                        child));
  waitpid(child, nullptr, 0);
}

}  // namespace
}  // namespace zero::test
