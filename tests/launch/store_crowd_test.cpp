// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
// Strangers in great numbers, and a host that has no room for a connection more.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/wait.h>

#include <algorithm>
#include <atomic>
#include <csignal>
#include <fstream>
#include <list>

#include "tests/errors.h"
#include "tests/launch/store_job.h"

namespace zero::testing {
namespace {

using namespace std::chrono_literals;
using ::testing::HasSubstr;

constexpr std::string_view kHugeMessage("\0\0\0\4", 4);  // announces 64 MiB, the most
// Announces 16 KiB of a handshake, TLS's largest record.
constexpr std::string_view kLargeHandshake("\x16\x03\x01\x40\0", 5);

std::int64_t resident_bytes() {
  std::int64_t pages = 0;
  std::int64_t resident = 0;
  std::ifstream("/proc/self/statm") >> pages >> resident;
  return resident * ::sysconf(_SC_PAGESIZE);
}

std::vector<RawClient> flood(int port, int clients, std::string_view words) {
  std::vector<RawClient> all;
  for (int i = 0; i < clients; ++i) {
    all.emplace_back(port);
    EXPECT_TRUE(all.back().connected());
    all.back().send(words);
  }
  return all;
}

TEST(StoreCrowd, AnnouncedBytesTakeNoMemory) {
  Job job(2, secret_of(kSecret));
  const std::int64_t before = resident_bytes();
  std::list<ProvenClient> clients;
  for (int i = 0; i < 40; ++i) {
    clients.emplace_back(job.first.port());
    EXPECT_THAT(clients.back().introduce(), ::testing::ElementsAre("ok"));
    clients.back().send(kHugeMessage);
  }
  EXPECT_LT(resident_bytes() - before, std::int64_t{64} << 20);
  ProvenClient another(job.first.port());
  EXPECT_THAT(another.introduce(), ::testing::ElementsAre("ok"));
  another.send(std::string_view("\1\0\0\4", 4));
  EXPECT_THAT(another.answer(), ::testing::IsEmpty());
  EXPECT_THAT(job.reported(), HasSubstr("was dropped: a message of 67108865 bytes; rank 0 takes "
                                        "at most 67108864"));
}

TEST(StoreCrowd, StrangersAreBoundedInNumberAndTime) {
  Job job(2, secret_of(kSecret));
  const std::int64_t before = resident_bytes();
  const auto crowd = flood(job.first.port(), 300, kLargeHandshake);
  // The ranks come through the crowd.
  TcpStore second(job.options(1));
  second.set("a", "1");
  EXPECT_EQ(job.first.get("a", kPatience), "1");
  const auto left = std::ranges::count_if(
      crowd, [](const RawClient& stranger) { return !stranger.is_closed_already(); });
  EXPECT_LE(left, 128);
  EXPECT_LT(resident_bytes() - before, std::int64_t{64} << 20);
  for (const RawClient& stranger : crowd) EXPECT_TRUE(stranger.is_closed()) << "its time is over";
  EXPECT_THAT(job.reported(), HasSubstr("newer connections took its place before its handshake"));
  EXPECT_EQ(job.first.lost(), std::nullopt);
}

TEST(StoreCrowd, ASilentStrangerIsDropped) {
  Job job(1, secret_of(kSecret));
  EXPECT_TRUE(RawClient(job.first.port()).is_closed());
  EXPECT_THAT(job.reported(), HasSubstr("no handshake within 5 s"));
}

TEST(StoreCrowd, AWaitLeavesWithItsClient) {
  Job job(2, secret_of(kSecret));
  constexpr int kClients = 24;
  const std::string key(std::size_t{4} << 20, 'k');
  const std::int64_t before = resident_bytes();
  const auto files = open_files();
  for (int i = 0; i < kClients; ++i) {
    {
      ProvenClient client(job.first.port());
      client.introduce();
      client.ask({"wait", "3600000", key});
    }
    const auto end = std::chrono::steady_clock::now() + kPatience;
    while (open_files() > files && std::chrono::steady_clock::now() < end) {
      std::this_thread::sleep_for(1ms);
    }
    ASSERT_LE(open_files(), files) << "the server holds the connection of a client that left";
  }
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
  constexpr std::int64_t kMostGrown = std::int64_t{1} << 40;  // a sanitizer keeps freed memory
#else
  constexpr std::int64_t kMostGrown = std::int64_t{64} << 20;
#endif
  EXPECT_LT(resident_bytes() - before, kMostGrown);
  job.first.set(key, "1");
  EXPECT_EQ(job.first.get(key, kPatience), "1");
  EXPECT_EQ(job.first.lost(), std::nullopt);
}

TEST(StoreCrowd, ARequestBeforeTheAnswerToAWaitIsDropped) {
  Job job(2, secret_of(kSecret));
  ProvenClient hasty(job.first.port());
  hasty.introduce();
  hasty.ask({"wait", "3600000", "a"});
  std::this_thread::sleep_for(100ms);
  hasty.ask({"lost?"});
  EXPECT_THAT(hasty.answer(), ::testing::IsEmpty());
  EXPECT_THAT(job.reported(), HasSubstr("a request before the answer to the one before"));
}

TEST(StoreCrowd, AKeyAnswersAllWhoWaitForIt) {
  Job job(2, secret_of(kSecret));
  std::list<ProvenClient> waiting;
  for (int i = 0; i < 3; ++i) {
    waiting.emplace_back(job.first.port());
    waiting.back().introduce();
    waiting.back().ask({"wait", "3600000", "a"});
  }
  std::this_thread::sleep_for(100ms);
  job.first.set("a", "1");
  for (ProvenClient& client : waiting) {
    EXPECT_THAT(client.answer(), ::testing::ElementsAre("ok"));
    client.ask({"lost?"});
    EXPECT_THAT(client.answer(), ::testing::ElementsAre("ok"))
        << "a connection goes on after a wait";
  }
}

double processor_seconds() {
  rusage used{};
  ::getrusage(RUSAGE_SELF, &used);
  const auto seconds = [](const timeval& time) {
    return static_cast<double>(time.tv_sec) + static_cast<double>(time.tv_usec) * 1e-6;
  };
  return seconds(used.ru_utime) + seconds(used.ru_stime);
}

/// What a process does whose descriptors run out while it keeps a store: 0 where all is well.
int store_without_descriptors() {
  Job job(2, secret_of(kSecret));
  // Lines that are there already serve on; another thread's would need a descriptor.
  job.first.set("a", "1");
  rlimit few{};
  ::getrlimit(RLIMIT_NOFILE, &few);
  const int lowest = ::dup(0);
  ::close(lowest);
  few.rlim_cur = static_cast<rlim_t>(lowest) + 40;
  if (::setrlimit(RLIMIT_NOFILE, &few) != 0) return 2;
  {
    // Each takes a descriptor at once, and another one as it is accepted.
    std::vector<RawClient> crowd;
    for (int i = 0; i < 60; ++i) crowd.emplace_back(job.first.port());
    std::this_thread::sleep_for(200ms);
    if (::dup(0) >= 0) return 3;
    const double before = processor_seconds();
    std::this_thread::sleep_for(1s);
    if (processor_seconds() - before > 0.1) return 4;
  }
  try {
    TcpStore second(job.options(1));
    second.set("b", "2");
    if (job.first.get("b", kPatience) != "2") return 5;
  } catch (const Error&) {
    return 6;
  }
  return job.reported().find("no connection can be taken for now: Too many open files") !=
                 std::string::npos
             ? 0
             : 7;
}

/// Runs `body` in a process of its own, which goes on `pause` after it has stopped itself; its exit
/// status.
template <typename Body>
int status_of_process(const Body& body, std::chrono::milliseconds pause = 0ms) {
  const pid_t child = ::fork();
  if (child == 0) ::_exit(body());
  for (int status = -1; child > 0 && ::waitpid(child, &status, WUNTRACED) == child;) {
    if (!WIFSTOPPED(status)) return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
    std::this_thread::sleep_for(pause);
    ::kill(child, SIGCONT);
  }
  return -1;
}

/// What a process does that keeps a store and is stopped while a client is in the middle of a
/// message, for longer than a message may take: 0 if the client may go on.
int store_that_is_stopped() {
  Job job(2, secret_of(kSecret), kPatience, {.message = 500ms});
  ProvenClient client(job.first.port());
  client.introduce();
  const std::string message = store_wire::framed({"lost?"});
  client.send(message.substr(0, 6));
  std::this_thread::sleep_for(100ms);
  ::raise(SIGSTOP);
  std::this_thread::sleep_for(100ms);
  client.send(message.substr(6));
  return client.answer() == store_wire::Message{"ok"} ? 0 : 2;
}

TEST(StoreCrowd, TimeInWhichAJobIsStoppedCountsForNoMessage) {
  EXPECT_EQ(status_of_process(store_that_is_stopped, 3s), 0) << "see store_that_is_stopped";
}

// A heartbeat of a host of many ranks, to a process that is stopped. Only the network's end would
// end the connection.
TEST(StoreCrowd, APeerThatReadsNothingIsThere) {
  ForeignListener listener;
  const RawClient sends(listener.port());
  const RawClient sleeps = listener.accepted();
  for (const RawClient* each : {&sends, &sleeps}) watch_peer(each->descriptor(), 1000ms);
  const std::string message(180'000, 'x');
  EXPECT_EQ(::send(sends.descriptor(), message.data(), message.size(), MSG_NOSIGNAL),
            std::ssize(message));
  std::this_thread::sleep_for(3s);
  EXPECT_FALSE(sends.is_closed_already());
  std::string got;
  while (got.size() < message.size()) {
    const std::string piece = sleeps.received();
    ASSERT_FALSE(piece.empty());
    got += piece;
  }
  EXPECT_EQ(got, message);
}

TEST(StoreCrowd, WithoutDescriptorsTheStoreRestsAndGoesOn) {
  EXPECT_EQ(status_of_process(store_without_descriptors), 0) << "see store_without_descriptors";
}

/// What rank 0 says if another process of this user has its name and takes no more connections:
/// 0 if that it must.
int store_whose_name_is_taken() {
  ::alarm(10);
  constexpr int kPort = 41'777;
  const LocalAddress at(kPort);
  const int holder = ::socket(AF_UNIX, SOCK_STREAM, 0);
  if (::bind(holder, at.address(), at.length) != 0 || ::listen(holder, 0) != 0) return 2;
  while (::connect(::socket(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0), at.address(), at.length) ==
         0) {
  }
  if (errno != EAGAIN) return 3;
  const std::string told =
      error_of([] { TcpStore store({.host = "127.0.0.1", .port = kPort, .rank = 0, .world = 2}); });
  return told.find(
             "for this user: Address already in use; give a MASTER_PORT that is free there") !=
                 std::string::npos
             ? 0
             : 4;
}

TEST(StoreCrowd, ANameWhoseHolderTakesNoConnectionIsAnError) {
  EXPECT_EQ(status_of_process(store_whose_name_is_taken), 0) << "see store_whose_name_is_taken";
}

constexpr int kRanks = 512;

// Ranks are threads here: each end of a connection takes descriptors of one process, the client's
// four.
TEST(StoreCrowd, FiveHundredRanksExchangeWithinSeconds) {
  EXPECT_EQ(status_of_process([] {
              rlimit files{};
              ::getrlimit(RLIMIT_NOFILE, &files);
              if (files.rlim_max < 8192) return 0;
              files.rlim_cur = 8192;
              ::setrlimit(RLIMIT_NOFILE, &files);
              const auto begin = std::chrono::steady_clock::now();
              std::atomic<int> whole = 0;
              std::optional<Job> job(kRanks);
              std::vector<std::jthread> ranks;
              for (int rank = 0; rank < kRanks; ++rank) {
                ranks.emplace_back([&, rank] {
                  std::optional<TcpStore> own;
                  TcpStore& store = rank == 0 ? job->first : own.emplace(job->options(rank));
                  const auto values = all_gather_texts({store, rank, kRanks, kPatience}, "host",
                                                       std::to_string(rank));
                  for (int i = 0; i < kRanks; ++i) {
                    if (values.at(static_cast<std::size_t>(i)) != std::to_string(i)) return;
                  }
                  ++whole;
                });
              }
              ranks.clear();
              if (whole != kRanks) return 2;
              return std::chrono::steady_clock::now() - begin < kPatience ? 0 : 3;
            }),
            0)
      << "2: all_gather_texts failed; 3: it took too long";
}

TEST(StoreCrowd, RankZeroRaisesTheLimitOfOpenFiles) {
  EXPECT_EQ(status_of_process([] {
              const rlimit files{.rlim_cur = 64, .rlim_max = 1000};
              if (::setrlimit(RLIMIT_NOFILE, &files) != 0) return 2;
              const Job job(248);  // what 1000 descriptors are just enough for
              rlimit raised{};
              ::getrlimit(RLIMIT_NOFILE, &raised);
              return raised.rlim_cur == 1000 ? 0 : 3;
            }),
            0);
  EXPECT_EQ(status_of_process([] {
              const rlimit files{.rlim_cur = 900, .rlim_max = 1000};
              if (::setrlimit(RLIMIT_NOFILE, &files) != 0) return 2;
              const Job job(2);
              rlimit raised{};
              ::getrlimit(RLIMIT_NOFILE, &raised);
              return raised.rlim_cur == 1000 ? 0 : 3;
            }),
            0)
      << "a limit that is enough as a rule is raised too";
  EXPECT_EQ(
      status_of_process([] {
        const rlimit files{.rlim_cur = 64, .rlim_max = 1000};
        if (::setrlimit(RLIMIT_NOFILE, &files) != 0) return 2;
        const std::string told = error_of([] { const Job job(249); });
        return told == "[rank 0] rendezvous: 249 ranks take 1003 file descriptors of rank 0's "
                       "process, which may open at most 1000; raise its hard limit (ulimit "
                       "-Hn), or start the ranks with mpirun"
                   ? 0
                   : 3;
      }),
      0);
}

}  // namespace
}  // namespace zero::testing
