// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <limits>
#include <numeric>

#include "collectives/host/claims.h"
#include "collectives/host/refusal.h"
#include "tests/collectives/host_ranks.h"
#include "tests/collectives/messages.h"

namespace zero::test {
namespace {

using host::DataPath;
using host::PeerDescriptor;
using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::EndsWith;
using ::testing::HasSubstr;
using ::testing::StartsWith;

constexpr std::int64_t kMost = std::numeric_limits<std::int64_t>::max();
constexpr std::int64_t kLeast = std::numeric_limits<std::int64_t>::min();

TEST(HostClaims, RangesHoldForAnyNumbers) {
  EXPECT_TRUE(host::in_range(0, 0, 0));
  EXPECT_TRUE(host::in_range(3, 7, 10));
  for (const auto& [offset, bytes] :
       std::vector<std::pair<std::int64_t, std::int64_t>>{{4, 7},
                                                          {-1, 1},
                                                          {0, -1},
                                                          {11, 0},
                                                          {0, 11},
                                                          {kMost, kMost},
                                                          {kLeast, kLeast},
                                                          {kMost, 1},
                                                          {1, kMost},
                                                          {kLeast, kMost}}) {
    EXPECT_FALSE(host::in_range(offset, bytes, 10)) << offset << " " << bytes;
  }
  EXPECT_EQ(message_of([] { host::check_range("values", 4, 7, 10); }),
            "values: 7 bytes at offset 4, expected a range in its 10 bytes");
}

TEST(HostMemory, ReachesNothingOutsideAPeersRegion) {
  host::Memory memory(2);
  host::Memory other(2);
  const auto peer = memory.meet(other.invitation());
  const std::int64_t whole = other.region().capacity();
  EXPECT_EQ(peer->capacity(), whole);
  EXPECT_NE(memory.reach(*peer, whole - 1, 1), nullptr);
  const auto reach = [&](std::int64_t offset, std::int64_t bytes) {
    return message_of([&] { memory.reach(*peer, offset, bytes); });
  };
  EXPECT_EQ(
      reach(whole, 1),
      fmt::format("memory of a peer: 1 bytes at offset {0}, expected a range in its {0} bytes",
                  whole));
  for (const auto& [offset, bytes] : std::vector<std::pair<std::int64_t, std::int64_t>>{
           {-1, 1}, {0, -1}, {0, whole + 1}, {whole - 4, 5}, {kMost, kMost}, {-kMost, kMost}}) {
    EXPECT_THAT(reach(offset, bytes), StartsWith("memory of a peer: ")) << offset << " " << bytes;
  }
}

// What is said of a claim on 100 values of 4 bytes.
std::string said_of(const PeerDescriptor& claim) {
  const host::ExpectedDescriptor awaited{
      .rank = 3, .count = 100, .element = 4, .body = 1000, .region = 5000};
  return message_of([&] { host::check_claim(claim, awaited); });
}

TEST(HostClaims, LieWhereTheirRankMayKeepThem) {
  EXPECT_EQ(said_of({DataPath::posted, 0, 600, 100}), "no error");
  EXPECT_EQ(said_of({DataPath::direct, 0, 4600, 100}), "no error");
  EXPECT_EQ(said_of({DataPath::staged, 0, -1, 100}), "no error");
  for (const std::int64_t offset : {kLeast, std::int64_t{-4}, std::int64_t{604}, kMost - 3}) {
    EXPECT_EQ(said_of({DataPath::posted, 0, offset, 100}),
              fmt::format("rank 3's notice: offset is {}, expected a multiple of 4 with 400 bytes "
                          "of values in the 1000 bytes of its notice",
                          offset));
  }
  EXPECT_THAT(said_of({DataPath::direct, 0, 4604, 100}),
              EndsWith("with 400 bytes of values in the 5000 bytes of its region"));
  EXPECT_THAT(said_of({DataPath::direct, 0, 2, 100}),
              HasSubstr("offset is 2, expected a multiple"));
  for (const std::int64_t count : {std::int64_t{99}, std::int64_t{0}, kLeast, kMost}) {
    EXPECT_EQ(said_of({DataPath::posted, 0, 0, count}),
              fmt::format("rank 3's notice: count is {}, expected 100 elements", count));
  }
  EXPECT_EQ(said_of({DataPath::shared, 0, 0, 100}),
            "rank 3's notice: reach is 3, expected at most 2");
  EXPECT_EQ(said_of({static_cast<DataPath>(77), 0, 0, 100}),
            "rank 3's notice: reach is 77, expected at most 2");
}

TEST(HostClaims, OfDestinationsCountsAndStagingsAreChecked) {
  const auto destination = [](std::int64_t offset) {
    return message_of([&] { host::check_destination({.offset = offset}, 3, 100, 1000); });
  };
  EXPECT_EQ(destination(-1), "no error");
  EXPECT_EQ(destination(900), "no error");
  EXPECT_EQ(destination(901),
            "rank 3's destination: offset is 901, expected 100 bytes in the 1000 of its region");
  EXPECT_THAT(destination(kMost), HasSubstr("offset is 9223372036854775807"));
  const auto counts = [](std::int64_t count, std::int64_t expected) {
    return message_of([&] { host::check_counts({0, count, expected}, 3, 4, 4); });
  };
  EXPECT_EQ(counts(5, 0), "no error");
  EXPECT_EQ(counts(-5, 0),
            "rank 3's table: count for rank 4 is -5, expected 0 to 17592186044416 elements");
  EXPECT_THAT(counts(0, kMost), HasSubstr("count for rank 4 is 9223372036854775807"));
  const auto staging = [](const std::string& line) {
    return message_of([&] { host::parse_offset(line, 3, 100, 1000); });
  };
  EXPECT_EQ(host::parse_offset("900", 3, 100, 1000), 900);
  for (const char* const line : {"", "-1", "901", "9x", " 9", "99999999999999999999"}) {
    EXPECT_EQ(staging(line), fmt::format("rank 3's staging offset is \"{}\", expected 100 bytes in "
                                         "the 1000 of its region",
                                         line));
  }
}

TEST(HostClaims, CallsAreReadAsWrittenAndOtherwiseAsFarAsTheyGo) {
  Call call;
  call.name = "all_gather(h.0)";
  call.details = "fp32";
  call.counts = {1, 2, 3};
  std::vector<std::byte> body(9000);
  host::write_call(call, body);
  const Call same = host::read_call(body);
  EXPECT_EQ(same.name, call.name);
  EXPECT_EQ(same.details, call.details);
  EXPECT_EQ(same.counts, call.counts);
  std::memset(body.data(), 0xff, body.size());  // lengths of 2^64 - 1
  const Call longest = host::read_call(body);
  EXPECT_EQ(longest.name.size(), 1024U);
  EXPECT_LT(longest.counts.size(), 9000U / 8);
  for (std::size_t length = 0; length < 100; ++length) {
    const std::vector<std::byte> cut(length, std::byte{0xff});
    EXPECT_EQ(host::read_call(cut).name.size(), length < 8 ? 0 : length - 8);
  }
}

TEST(HostClaims, TextEndsWithItsRoom) {
  EXPECT_EQ(host::text_in(std::string_view("why\0not", 7)), "why");
  EXPECT_EQ(host::text_in(std::string_view("why")), "why");
  EXPECT_EQ(host::text_in(std::string_view("\x1b[31m")), "?[31m");
}

// An honest rank 0, and a rank 1 that tells it lines and writes to their board what it likes.
class Liar {
 public:
  using Honest = std::function<void(host::Group&)>;
  using Lie = std::function<void(host::Board&)>;

  /// The staging offset that rank 1 tells.
  std::string staging = "0";

  /// Gives rank 0's message.
  std::string run(const Honest& honest, const Lie& lie) {
    std::string message;
    std::jthread liar([&] {
      const auto all_gather_texts = ranks_.all_gather_texts_of(1);
      host::Memory memory(2);
      all_gather_texts(memory.invitation());
      const auto file = host::opened(host::Invitation::parse(all_gather_texts("-")[0]));
      all_gather_texts(host::usable_cores());
      all_gather_texts(staging);
      host::Board board(file.get(), 1, 2);
      lie(board);
      done_.arrive_and_wait();  // its memory is there until the honest rank has ended
    });
    const auto memory = std::make_shared<host::Memory>(2);
    message = message_of([&] {
      const auto joined = host::Group::join(memory, "", {0, 2}, ranks_.all_gather_texts_of(0));
      ZERO_CHECK(joined.group != nullptr, "{}", joined.refusal);
      honest(*joined.group);
    });
    done_.arrive_and_wait();
    return message;
  }

 private:
  HostRanks ranks_{2};
  std::barrier<> done_{2};
};

// Rank 0's message when rank 1 answers its call by the notice that `forge` makes of rank 0's own.
std::string answered(const Liar::Honest& honest, const Liar::Lie& forge) {
  Liar liar;
  return liar.run(honest, [&](host::Board& board) {
    board.turn();
    while (board.notice(0).came.load() == 0) sched_yield();
    auto& notice = board.notice(1);
    notice.reach = board.notice(0).reach;
    notice.agreement = board.notice(0).agreement;
    notice.offset = 0;
    const auto bytes = static_cast<std::size_t>(board.body_bytes());
    std::memcpy(board.body(1), board.body(0), bytes);
    forge(board);
    board.arrive();
  });
}

constexpr std::int64_t kCount = 60'000;  // of values that do not fit the board

void all_reduce_plain(host::Group& group) {
  std::vector<float> values(kCount);
  group.all_reduce(View::of(std::span(values)), ReduceOp::sum, "h.0");
}

void broadcast_from_liar(host::Group& group) {
  std::vector<float> values(kCount);
  group.broadcast(View::of(std::span(values)), 1, "h.0");
}

TEST(HostLies, OfOffsetsAndReachesAreNamed) {
  for (const std::int64_t offset : {std::int64_t{-4096}, kMost - 3, std::int64_t{1} << 45}) {
    EXPECT_THAT(answered(broadcast_from_liar,
                         [&](host::Board& board) {
                           board.notice(1).reach = DataPath::direct;
                           board.notice(1).offset = offset;
                         }),
                AllOf(StartsWith("[rank 0] broadcast(h.0): rank 1's notice: offset is "),
                      HasSubstr(fmt::format("is {}, expected a multiple of 4 with 240000 bytes of "
                                            "values in the",
                                            offset))));
  }
  EXPECT_THAT(
      answered(broadcast_from_liar,
               [](host::Board& board) { board.notice(1).reach = DataPath::posted; }),
      HasSubstr("rank 1's notice: offset is 0, expected a multiple of 4 with 240000 bytes"));
  EXPECT_EQ(answered(all_reduce_plain,
                     [](host::Board& board) { board.notice(1).reach = static_cast<DataPath>(9); }),
            "[rank 0] all_reduce(h.0): rank 1's notice: reach is 9, expected at most 2");
  EXPECT_EQ(answered(all_reduce_plain,
                     [](host::Board& board) { board.notice(1).reach = DataPath::shared; }),
            "[rank 0] all_reduce(h.0): rank 1's notice: reach is 3, expected at most 2");
}

host::Entry& row(host::Board& board, int rank, int peer) {
  return reinterpret_cast<host::Entry*>(board.body(rank))[peer];
}

TEST(HostLies, OfTablesAreNamed) {
  const auto reduce_scatter = [](host::Group& group) {
    std::vector<float> values(8);
    const Slices full = Slices::even(View::of(std::span(values)), 2);
    group.reduce_scatter(full, {{}, full.of(0), nullptr}, {}, "h.0");
  };
  EXPECT_THAT(
      answered(reduce_scatter, [](host::Board& board) { row(board, 1, 0).offset = 1 << 20; }),
      StartsWith("[rank 0] reduce_scatter(h.0): rank 1's notice: offset is 1048576, "));
  EXPECT_EQ(answered(reduce_scatter, [](host::Board& board) { row(board, 1, 0).count = kLeast; }),
            fmt::format("[rank 0] reduce_scatter(h.0): rank 1's notice: count is {}, expected 4 "
                        "elements",
                        kLeast));
  const auto all_to_all = [](host::Group& group) {
    std::vector<float> out(8);
    std::vector<float> in(8);
    group.all_to_all(Slices::even(View::of(std::span(out)), 2),
                     Slices::even(View::of(std::span(in)), 2), "h.0");
  };
  EXPECT_THAT(answered(all_to_all,
                       [](host::Board& board) {
                         row(board, 1, 1).count = kMost;  // which it sends itself
                         row(board, 1, 1).expected = kMost;
                       }),
              StartsWith("[rank 0] all_to_all(h.0): rank 1's table: count for rank 1 is 92233"));
}

TEST(HostLies, OfDestinationsAreNamed) {
  const auto all_gather = [](host::Group& group) {
    std::vector<float> values(2 * kCount);
    const Slices full = Slices::even(View::of(std::span(values)), 2);
    group.all_gather(full.of(0), full, "h.0");
  };
  EXPECT_THAT(
      answered(
          all_gather,
          [](host::Board& board) {
            reinterpret_cast<host::Destination*>(board.body(1) + host::Board::kPosted)->offset =
                kMost;
          }),
      StartsWith("[rank 0] all_gather(h.0): rank 1's destination: offset is 92233720"));
}

TEST(HostLies, OfStagingOffsetsAreNamed) {
  for (const char* const line : {"-1", "9223372036854775807", "none", ""}) {
    Liar liar;
    liar.staging = line;
    EXPECT_THAT(
        liar.run([](host::Group&) {}, [](host::Board&) {}),
        StartsWith(fmt::format("[rank 0] rank 1's staging offset is \"{}\", expected ", line)));
  }
}

TEST(HostLies, OfCallsThatDifferAreReadAsFarAsTheyGo) {
  Liar liar;
  const auto message =
      liar.run([](host::Group& group) { group.barrier("h.0"); },
               [](host::Board& board) {
                 for (int meeting = 0; meeting < 2; ++meeting) {
                   board.turn();
                   board.notice(1).agreement = 1;
                   std::memset(board.body(1), 0xff, static_cast<std::size_t>(board.body_bytes()));
                   board.arrive();
                 }
               });
  EXPECT_THAT(message, AllOf(StartsWith("[rank 0] barrier(h.0) met "), HasSubstr(" of rank 1")));
}

TEST(HostLies, OfAFailureWithoutAnEndAreCut) {
  Liar liar;
  const auto message =
      liar.run([](host::Group& group) { group.barrier("h.0"); },
               [](host::Board& board) { board.fail(std::string(5000, 'x') + "\n"); });
  EXPECT_EQ(message, "[rank 0] barrier(h.0): the group has failed: " + std::string(1023, 'x'));
}

}  // namespace
}  // namespace zero::test
