// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
// Strangers and faulty clients, drawn in great numbers, before the store of a job that works on.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <malloc.h>

#include <charconv>
#include <chrono>

#include "launch/rendezvous/store/acceptor.h"
#include "tests/case_names.h"
#include "tests/launch/store_visits.h"
#include "tests/support/long_tests.h"

// Of sanitizers, whose allocators mallinfo2 does not know.
extern "C" std::size_t
__sanitizer_get_current_allocated_bytes()  // NOLINT(bugprone-reserved-identifier)
    __attribute__((weak));

namespace zero::testing {

void PrintTo(Door door, std::ostream* out) {
  *out << (door == Door::network ? "network" : "local");
}

namespace {

using namespace std::chrono_literals;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using Clock = std::chrono::steady_clock;

/// What all objects of this process take.
std::int64_t live_bytes() {
  if (__sanitizer_get_current_allocated_bytes != nullptr) {
    return static_cast<std::int64_t>(__sanitizer_get_current_allocated_bytes());
  }
  const struct mallinfo2 now = ::mallinfo2();
  return static_cast<std::int64_t>(now.uordblks + now.hblkhd);
}

/// The number before " more " in a line; 0 if there is none.
std::int64_t more_in(std::string_view line) {
  const std::size_t end = line.find(" more ");
  if (end == std::string_view::npos) return 0;
  const std::size_t begin = line.find_last_not_of("0123456789", end - 1) + 1;
  std::int64_t number = 0;
  std::from_chars(line.data() + begin, line.data() + end, number);
  return number;
}

/// The connections that lines report as dropped.
std::int64_t dropped_in(const std::vector<std::string>& lines) {
  std::int64_t dropped = 0;
  for (const std::string& line : lines) {
    EXPECT_THAT(line, HasSubstr("dropped"));
    dropped += more_in(line) + (line.find("a connection from ") != std::string::npos ? 1 : 0);
  }
  return dropped;
}

class StoreStrangers : public ::testing::TestWithParam<Door> {};

// One thread draws and sends; every input is redrawn from its number and the seed.
TEST_P(StoreStrangers, DoNotHarmTheJob) {
  constexpr StoreLimits kLimits{.handshake = 2000ms, .message = 2000ms};
  // Beyond what stays in the store by right: connections, their buffers, the threads' caches.
  constexpr std::int64_t kMostBytes = std::int64_t{64} << 20;
  // What an input leaves in the store at most, on the average: a mutated key with its value.
  constexpr std::int64_t kBytesOfInput = 512;
  const std::int64_t inputs = long_tests() ? 50'000 : 400;
  std::vector<Behavior> behaviors = behaviors_inside();
  std::ranges::copy(behaviors_outside(), std::back_inserter(behaviors));
  const Door door = GetParam();
  StoreTls right(secret_at(door).value_or(JobSecret::known_to_all()), StoreTls::End::client);
  StoreTls wrong(secret_of("another secret of a test"), StoreTls::End::client);
  Draw seed;
  ToldLines told;
  const auto began = Clock::now();
  BusyJob job(door, told, kLimits);
  const std::ptrdiff_t files = open_files();
  const std::int64_t bytes = live_bytes();
  const auto bound = [&](std::int64_t number) {
    return bytes + kMostBytes + number * kBytesOfInput +
           BusyJob::kBytesOfKey * BusyJob::kKeysOfRound * job.rounds();
  };
  std::int64_t dropped = 0;
  {
    LeftOpen left_open;
    for (std::int64_t number = 0; number < inputs && job.is_whole() && !HasFailure(); ++number) {
      Visit visit{.door = door,
                  .port = job.port(),
                  .right = right,
                  .wrong = wrong,
                  .left_open = left_open,
                  .number = number,
                  .draw = Draw(seed.seed(), number)};
      const Behavior behavior = visit.draw.one_of(behaviors);
      SCOPED_TRACE(
          fmt::format("ZERO_TEST_SEED={}, input {}: {}", seed.seed(), number, behavior.name));
      if (behavior.run(visit) == Fate::dropped) ++dropped;
      ASSERT_LT(live_bytes(), bound(number)) << "the server holds more than it should";
    }
    for (const RawClient& client : left_open.silent) {
      EXPECT_TRUE(client.is_closed()) << "its time is over";
    }
  }
  EXPECT_TRUE(soon([&] { return open_files() <= files; })) << "the server holds descriptors";
  EXPECT_LT(live_bytes(), bound(inputs));
  EXPECT_GT(job.rounds(), 2);
  EXPECT_THAT(job.end(), ::testing::Each("no error"));
  const std::vector<std::string> lines = told.all();
  EXPECT_GE(dropped_in(lines), dropped) << "what is dropped is reported";
  // One each ten seconds, the first and the last.
  EXPECT_LE(std::ssize(lines), 2 + (Clock::now() - began) / ConnectionLog::kBetween);
}

/// A job of two ranks behind a door, whose store has these limits.
Job job_behind(Door door, StoreLimits limits) { return Job(2, secret_at(door), kPatience, limits); }

class StoreStrangersEnd : public StoreStrangers {
 protected:
  /// A client that knows the secret and says it is rank 1.
  Stranger client(Job& job) {
    Stranger one(GetParam(), job.first.port(), tls_);
    EXPECT_TRUE(one.enter({.rank = 1, .world = 2}));
    return one;
  }
  StoreTls tls_{secret_at(GetParam()).value_or(JobSecret::known_to_all()), StoreTls::End::client};
};

TEST_P(StoreStrangersEnd, AfterHalfAMessage) {
  Job job = job_behind(GetParam(), {});
  const std::string half = store_wire::framed({"set", "a", "1"}).substr(0, 9);
  {
    Stranger leaves = client(job);
    leaves.send(half);
  }
  EXPECT_TRUE(job.reports("was dropped: it left in the middle of a message"));
  check_completes(job);
}

TEST_P(StoreStrangersEnd, AfterAHalfMessageThatTakesTooLong) {
  Job job = job_behind(GetParam(), {.message = 50ms});
  Stranger rests = client(job);
  Stranger slow = client(job);
  slow.send(store_wire::framed({"set", "a", "1"}).substr(0, 9));
  EXPECT_THAT(slow.answer(), IsEmpty());
  EXPECT_TRUE(job.reports("was dropped: no whole message within 50 ms"));
  rests.say({"lost?"});
  EXPECT_THAT(rests.answer(), ElementsAre("ok")) << "between two messages a client may rest";
  rests.say({"wait", "150", "a"});
  EXPECT_THAT(rests.answer(), ElementsAre("missing", HasSubstr("rank 1"), "a"))
      << "a wait may last longer than a message";
  check_completes(job);
}

TEST_P(StoreStrangersEnd, IfTheyDoNotTakeTheirAnswers) {
  Job job = job_behind(GetParam(), {.message = 50ms});
  job.first.set("long", std::string(1'000'000, 'x'));
  Stranger greedy = client(job);
  std::string requests;
  // More than the system keeps for a connection.
  for (int i = 0; i < 200; ++i) requests += store_wire::framed({"get", "0", "long"});
  greedy.send(requests);
  EXPECT_TRUE(job.reports("was dropped: it does not take its answer within 50 ms"));
  check_completes(job);
}

TEST_P(StoreStrangersEnd, BeforeAnIntroduction) {
  Job job = job_behind(GetParam(), {.handshake = 50ms});
  Stranger silent(GetParam(), job.first.port(), tls_);
  static_cast<void>(silent.shake());
  EXPECT_THAT(silent.answer(), IsEmpty());
  EXPECT_TRUE(job.reports("was dropped: no handshake within 50 ms"));
}

TEST_P(StoreStrangersEnd, AtAnIntroductionThatIsTooLong) {
  Job job = job_behind(GetParam(), {});
  Stranger talks(GetParam(), job.first.port(), tls_);
  EXPECT_TRUE(talks.shake());
  talks.send(store_wire::framed({std::string(store_wire::kLargestIntroduction - 3, 'x')}));
  EXPECT_THAT(talks.answer(), IsEmpty());
  EXPECT_TRUE(job.reports("was dropped: a message of 4097 bytes; rank 0 takes at most 4096"));
  check_completes(job);
}

INSTANTIATE_TEST_SUITE_P(Doors, StoreStrangers, ::testing::Values(Door::network, Door::local),
                         kCaseName);
INSTANTIATE_TEST_SUITE_P(Doors, StoreStrangersEnd, ::testing::Values(Door::network, Door::local),
                         kCaseName);

}  // namespace
}  // namespace zero::testing
