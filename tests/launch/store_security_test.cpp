// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
// Strangers at the door of a store, and a stranger in its place.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/wait.h>

#include <thread>

#include "launch/rendezvous/job_secret.h"
#include "launch/rendezvous/store/wire.h"
#include "tests/errors.h"
#include "tests/launch/store_job.h"

namespace zero::testing {
namespace {

using namespace std::chrono_literals;
using namespace store_wire;
using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

/// The port was given a stranger's words: the job goes on, and the stranger is dropped and
/// reported.
void check_dropped(const std::string& words, const std::string& why) {
  Job job(2, secret_of(kSecret));
  {
    const RawClient stranger(job.first.port());
    stranger.send(words);
    EXPECT_TRUE(stranger.is_closed()) << why;
  }
  EXPECT_THAT(job.reported(), AllOf(HasSubstr("[rank 0] rendezvous: a connection from 127.0.0.1:"),
                                    HasSubstr(why), Not(HasSubstr(kSecret))));
  check_completes(job);
}

TEST(StoreSecurity, StrangersWordsDoNotHarmTheJob) {
  const std::string why = "not the handshake of a rank of this program";
  check_dropped("GET / HTTP/1.1\r\nHost: a\r\n\r\n", why);
  check_dropped(framed({"iam", std::string(kVersion), "1", "2", ""}), why);
  check_dropped(std::string(8, '\0'), why);
}

TEST(StoreSecurity, WhoeverKnowsTheSecretIsIntroducedFirst) {
  Job job(2, secret_of(kSecret));
  const auto refused = [&](const Message& first) {
    ProvenClient client(job.first.port());
    client.ask(first);
    const Message answer = client.answer();
    EXPECT_EQ(answer.at(0), "refused");
    EXPECT_TRUE(client.answer().empty());
    return answer.at(1);
  };
  EXPECT_THAT(refused({"set", "start/host/0", "elsewhere"}),
              HasSubstr("it does not say which rank it is"));
  EXPECT_THAT(refused({"iam", "zero-store-4", "1", "2", ""}), HasSubstr("another version"));
  EXPECT_THAT(refused({"iam", std::string(kVersion), "2", "2", ""}), HasSubstr("from 0 to 1"));
  check_completes(job);
}

TEST(StoreSecurity, BothSidesSayThatSecretsDiffer) {
  Job job(2, secret_of(kSecret));
  TcpStore::Options other = job.options(1);
  other.secret = secret_of("another secret of a test");
  EXPECT_THAT(error_of([&] { TcpStore store(other); }),
              HasSubstr("rank 0 does not know this job's secret"));
  EXPECT_TRUE(job.reports("it does not know this job's secret"));
  other.secret.reset();
  EXPECT_THAT(error_of([&] { TcpStore store(other); }),
              HasSubstr("rank 0 was started with a secret of its job, this process without; give "
                        "it the same ZERO_JOB_SECRET, or ZERO_JOB_SECRET_FILE"));
  check_completes(job);

  Job open(2);
  TcpStore::Options closed = open.options(1);
  closed.secret = secret_of(kSecret);
  EXPECT_THAT(error_of([&] { TcpStore store(closed); }),
              HasSubstr("rank 0 does not know this job's secret: it was started with another one, "
                        "or with none"));
  EXPECT_TRUE(open.reports("it does not know this job's secret"));
  check_completes(open);
}

TEST(StoreSecurity, WithoutASecretNothingListensOnTheNetwork) {
  Job job(2);
  EXPECT_FALSE(RawClient(job.first.port()).connected());
  check_completes(job);
}

TEST(StoreSecurity, WithASecretRanksMeetOnTheNetwork) {
  Job job(3, secret_of(kSecret));
  EXPECT_TRUE(RawClient(job.first.port()).connected());
  TcpStore third(job.options(2));
  TcpStore second(job.options(1));
  std::jthread waiter([&] { second.wait({"a", "b"}, kPatience); });
  third.set("a", "1");
  job.first.set("b", std::string(20 << 20, 'x'));
  EXPECT_EQ(third.get("b", kPatience).size(), std::size_t{20} << 20);
  EXPECT_THAT(error_of([&] { TcpStore twin(job.options(2)); }),
              HasSubstr("rank 2 is there already; give each process a rank of its own"));
  EXPECT_THAT(error_of([&] {
                TcpStore store({.host = "127.0.0.1",
                                .port = job.first.port(),
                                .rank = 0,
                                .world = 1,
                                .secret = secret_of(kSecret)});
              }),
              AllOf(HasSubstr("[rank 0] rendezvous: cannot listen on port"),
                    HasSubstr("Address already in use"),
                    HasSubstr("give a MASTER_PORT that is free there")));
}

TEST(StoreSecurity, ASecretThatNobodyAnswersIsNamedAsAReason) {
  const int port = ForeignListener().port();  // free again
  EXPECT_THAT(
      error_of([&] {
        TcpStore store({.host = "127.0.0.1",
                        .port = port,
                        .rank = 1,
                        .world = 2,
                        .timeout = 250ms,
                        .secret = secret_of(kSecret)});
      }),
      HasSubstr(
          "Connection refused; check that rank 0 runs, and that MASTER_ADDR and MASTER_PORT are "
          "its host's; a rank 0 that was given no secret listens on its own host"));
}

TEST(StoreSecurity, ValuesBeyondWhatAMessageHoldsAreRefused) {
  Job job(1);
  EXPECT_THAT(error_of([&] { job.first.set("a", std::string(64 << 20, 'x')); }),
              HasSubstr("set(a): a message of 67108"));
}

TEST(StoreSecurity, RanksOfSeveralHostsAreToldThatTheyNeedASecret) {
  const auto hint = HasSubstr(
      "ranks on several hosts need one: make one once, export ZERO_JOB_SECRET=$(openssl rand -hex "
      "32), and give all ranks the same value");
  // An address of the kind that documents use: no host has it.
  for (const int rank : {0, 1}) {
    EXPECT_THAT(
        error_of([&] {
          TcpStore store({.host = "192.0.2.1", .port = 29500, .rank = rank, .world = 2});
        }),
        AllOf(HasSubstr("rendezvous at 192.0.2.1:29500: 192.0.2.1 is no address of this host, "
                        "and this job has no secret"),
              hint));
  }
  EXPECT_THAT(
      error_of([&] {
        TcpStore store({.host = "no-such-host.invalid", .port = 29500, .rank = 1, .world = 2});
      }),
      AllOf(HasSubstr("[rank 1] \"no-such-host.invalid\", where rank 0 is said to be, has no "
                      "address here ("),
            HasSubstr("correct MASTER_ADDR"), Not(HasSubstr("secret"))));
  for (const Spread spread : {Spread::several_hosts, Spread::unsaid}) {
    TcpStore first({.host = "127.0.0.1", .port = 0, .rank = 0, .world = 2, .spread = spread});
    const std::string error = error_of([&] { first.wait({"start/host/1"}, 10ms); });
    EXPECT_THAT(error, HasSubstr("rank 1 has not come within 10 ms; check that every rank was "
                                 "started"));
    const auto told = AllOf(HasSubstr("; this job has no secret, and"), hint);
    if (spread == Spread::several_hosts) {
      EXPECT_THAT(error, told);
    } else {  // no other host could come
      EXPECT_THAT(error, Not(HasSubstr("secret")));
    }
  }
}

// As launchers do that call rank 0's host by that name to rank 0 alone.
TEST(StoreSecurity, ALocalhostOfSeveralHostsIsReachedFromThem) {
  constexpr in_addr_t kOther = INADDR_LOOPBACK + 1;  // stands for any other address of this host
  for (const std::string host : {"localhost", "127.0.0.1"}) {
    const auto rank = [&](int number, int port, Spread spread) {
      return TcpStore::Options{.host = number == 0 ? host : "127.0.0.2",
                               .port = port,
                               .rank = number,
                               .world = 2,
                               .spread = spread,
                               .timeout = kPatience,
                               .secret = secret_of(kSecret)};
    };
    TcpStore first(rank(0, 0, Spread::several_hosts));
    EXPECT_TRUE(RawClient(first.port(), kOther).connected());
    TcpStore second(rank(1, first.port(), Spread::several_hosts));
    second.set("a", "1");
    EXPECT_EQ(first.get("a", kPatience), "1");
    for (const Spread spread : {Spread::one_host, Spread::unsaid}) {
      const TcpStore inside(rank(0, 0, spread));
      EXPECT_TRUE(RawClient(inside.port()).connected());
      EXPECT_FALSE(RawClient(inside.port(), kOther).connected());
    }
  }
}

TEST(StoreSecurity, RanksOfOneHostNeedThePortAlone) {
  for (const std::string host :
       {"192.0.2.1", "no-such-host.invalid", "1.0.0.127.in-addr.arpa", "[::1]"}) {
    TcpStore::Options options{
        .host = host, .rank = 0, .world = 2, .spread = Spread::one_host, .timeout = kPatience};
    TcpStore first(options);
    options.port = first.port();
    options.rank = 1;
    TcpStore second(options);
    second.set("a", "1");
    EXPECT_EQ(first.get("a", kPatience), "1") << host;
  }
  EXPECT_THAT(error_of([&] {
                TcpStore store({.host = "192.0.2.1",
                                .port = ForeignListener().port(),  // free again
                                .rank = 1,
                                .world = 2,
                                .spread = Spread::one_host,
                                .timeout = 50ms});
              }),
              AllOf(HasSubstr("192.0.2.1 is no address of this host, though all ranks are said "
                              "to be on one host: if they are not, correct LOCAL_WORLD_SIZE or "
                              "SLURM_NNODES"),
                    Not(HasSubstr("SECRET"))));
}

/// Another user's process that has the name at which this user's store is found, until told.
class Squatter {
 public:
  explicit Squatter(int port) {
    std::array<int, 2> ready{};
    EXPECT_EQ(::socketpair(AF_UNIX, SOCK_STREAM, 0, ready.data()), 0);
    const LocalAddress at(port);
    child_ = ::fork();
    if (child_ == 0) squat(at, ready[1]);
    ::close(ready[1]);
    char sign = 0;
    EXPECT_EQ(::read(ready[0], &sign, 1), 1);
    ::close(ready[0]);
  }
  ~Squatter() {
    ::kill(child_, SIGKILL);
    ::waitpid(child_, nullptr, 0);
  }
  Squatter(const Squatter&) = delete;
  Squatter& operator=(const Squatter&) = delete;

  static constexpr uid_t kUser = 65'534;

 private:
  [[noreturn]] static void squat(const LocalAddress& at, int ready) {
    const int socket = ::socket(AF_UNIX, SOCK_STREAM, 0);
    const bool done = ::setuid(kUser) == 0 && ::bind(socket, at.address(), at.length) == 0 &&
                      ::listen(socket, 8) == 0 && ::write(ready, "r", 1) == 1;
    if (done) ::pause();
    ::_exit(1);
  }
  pid_t child_ = -1;
};

TEST(StoreSecurity, AnotherUserWhoTakesTheNameIsNamed) {
  if (::geteuid() != 0) GTEST_SKIP() << "only root can be another user";
  const int port = ForeignListener().port();
  const Squatter squatter(port);
  EXPECT_THAT(
      error_of([&] { TcpStore store({.host = "127.0.0.1", .port = port, .rank = 1, .world = 2}); }),
      HasSubstr("of user id 65534 has taken the name at which this user's rank 0 is "
                "expected; give another MASTER_PORT"));
  EXPECT_THAT(
      error_of([&] { TcpStore store({.host = "127.0.0.1", .port = port, .rank = 0, .world = 2}); }),
      HasSubstr("of user id 65534 has it); give a MASTER_PORT that is free there"));
  Job with_secret(2, secret_of(kSecret));
  check_completes(with_secret);
}

TEST(StoreSecurity, AnotherUsersProcessIsDropped) {
  if (::geteuid() != 0) GTEST_SKIP() << "only root can be another user";
  Job job(2);
  const LocalAddress at(job.first.port());
  const auto come_and_end = [&] {
    const int socket = ::socket(AF_UNIX, SOCK_STREAM, 0);
    char byte = 0;
    const bool dropped = ::setuid(Squatter::kUser) == 0 &&
                         ::connect(socket, at.address(), at.length) == 0 &&
                         ::read(socket, &byte, 1) <= 0;
    ::_exit(dropped ? 0 : 1);
  };
  EXPECT_EXIT(come_and_end(), ::testing::ExitedWithCode(0), "") << "it was told something";
  EXPECT_THAT(job.reported(), HasSubstr("of user id 65534 was dropped: without a secret, only this "
                                        "user's processes may come"));
  check_completes(job);
}

}  // namespace
}  // namespace zero::testing
