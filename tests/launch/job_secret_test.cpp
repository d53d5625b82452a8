// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#include "launch/rendezvous/job_secret.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <atomic>
#include <map>
#include <thread>

#include "collectives/communicator.h"
#include "launch/process/configuration_error.h"
#include "launch/rendezvous/start.h"
#include "tests/errors.h"
#include "tests/launch/environment_of.h"
#include "tests/launch/store_job.h"
#include "tests/scratch.h"
#include "tests/variable.h"

namespace zero::testing {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

const std::string kWords = "0123456789abcdef";

/// A file of 0600 or of another mode.
std::string secret_file(const Scratch& folder, const std::string& content, mode_t mode = 0600) {
  const std::string path = folder.write("secret", content);
  EXPECT_EQ(::chmod(path.c_str(), mode), 0);
  return path;
}

std::string refusal(const std::string& path) {
  return error_of([&] { JobSecret::of_file(path); });
}

std::optional<JobSecret> read(const std::map<std::string, std::string>& variables) {
  return read_job_secret(environment_of(variables));
}

TEST(JobSecret, IsReadFromAVariableOrAFile) {
  const Scratch folder;
  EXPECT_FALSE(read({}).has_value());
  const std::string expected = JobSecret(kWords, "the test").hmac("text");
  EXPECT_EQ(read({{"ZERO_JOB_SECRET", kWords}})->hmac("text"), expected);
  for (const std::string end : {"", "\n", "\r\n"}) {
    const std::string path = secret_file(folder, kWords + end);
    EXPECT_EQ(read({{"ZERO_JOB_SECRET_FILE", path}})->hmac("text"), expected);
  }
  EXPECT_EQ(JobSecret::of_file(secret_file(folder, kWords, 0400)).hmac("text"), expected);
  EXPECT_NE(JobSecret::of_file(secret_file(folder, kWords + "\n\n")).hmac("text"), expected);
  EXPECT_THAT(
      error_of([&] {
        read({{"ZERO_JOB_SECRET", kWords}, {"ZERO_JOB_SECRET_FILE", secret_file(folder, kWords)}});
      }),
      AllOf(HasSubstr("both ZERO_JOB_SECRET and ZERO_JOB_SECRET_FILE are set; unset one"),
            Not(HasSubstr(kWords))));
}

TEST(JobSecret, AShortOneIsRefused) {
  const Scratch folder;
  EXPECT_THAT(error_of([] {
                read({{"ZERO_JOB_SECRET", "0123456789abcde"}});
              }),
              AllOf(HasSubstr("the variable ZERO_JOB_SECRET: the job's secret has 15 bytes, "
                              "expected 16 to 4096; make one with \"openssl rand -hex 32\""),
                    Not(HasSubstr("0123456789"))));
  EXPECT_THAT(refusal(secret_file(folder, "0123456789abcde\n")), HasSubstr("has 15 bytes"));
  EXPECT_THAT(refusal(secret_file(folder, "")), HasSubstr("has 0 bytes"));
  EXPECT_THAT(refusal(secret_file(folder, std::string(100'000, 'x'))), HasSubstr("to 4096"));
}

TEST(JobSecret, AFileThatOthersMayReadIsRefused) {
  const Scratch folder;
  for (const mode_t mode : {0644, 0640, 0604, 0620, 0700}) {
    EXPECT_THAT(refusal(secret_file(folder, kWords, mode)),
                AllOf(HasSubstr("ZERO_JOB_SECRET_FILE: " + folder.path("secret")),
                      HasSubstr(fmt::format("has mode {:04o}, expected 0600 or stricter", mode)),
                      Not(HasSubstr(kWords))));
  }
}

TEST(JobSecret, WhatIsNoFileOfThisUserIsRefused) {
  const Scratch folder;
  EXPECT_THAT(refusal(folder.path("none")), HasSubstr("cannot be opened: No such file"));
  EXPECT_THAT(refusal(folder.path()), HasSubstr("is not a regular file"));
  ASSERT_EQ(::mkfifo(folder.path("pipe").c_str(), 0600), 0);
  EXPECT_THAT(refusal(folder.path("pipe")), HasSubstr("is not a regular file"));
  if (::geteuid() != 0) return;  // only root can give a file away
  const std::string path = secret_file(folder, kWords);
  ASSERT_EQ(::chown(path.c_str(), 65'534, 65'534), 0);
  EXPECT_THAT(refusal(path), HasSubstr("belongs to user id 65534, this process to 0"));
}

// The value of RFC 4231, test case 2.
TEST(Digest, IsHmacSha256) {
  std::string hex;
  for (const char byte : hmac_sha256("Jefe", "what do ya want for nothing?")) {
    hex += fmt::format("{:02x}", static_cast<unsigned char>(byte));
  }
  EXPECT_EQ(hex, "5bdcc146bf60754e6a042426089575c75a003f089d2739839dec58b964ec3843");
}

/// Starts a job as RANK, WORLD_SIZE and so on have it, its ranks as threads here.
void check_starts(int ranks) {
  const int port = ForeignListener().port();  // free again
  std::atomic<int> sum{0};
  {
    std::vector<std::jthread> all;
    for (int rank = 0; rank < ranks; ++rank) {
      all.emplace_back([&, rank] {
        const Start start{.by = Start::By::variables,
                          .rank = rank,
                          .world = ranks,
                          .local_rank = rank,
                          .local_world = ranks,
                          .address = "127.0.0.1",
                          .port = port};
        EXPECT_EQ(error_of([&] {
                    run_ranks(start, BetweenHosts::mpi, nullptr, nullptr, [&](Communicator& world) {
                      return sum += world.rank() + world.size();
                    });
                  }),
                  "no error");
      });
    }
  }
  EXPECT_EQ(sum, 3 + 4 + 5);
}

TEST(JobSecret, SlurmsRanksOnSeveralHostsNeedOne) {
  for (const int rank : {0, 3}) {
    const Start start{.by = Start::By::slurm,
                      .rank = rank,
                      .world = 4,
                      .local_rank = rank % 2,
                      .local_world = 2,
                      .spread = Spread::several_hosts,
                      .address = "no-such-host.invalid",
                      .port = 1};
    try {
      run_ranks(start, BetweenHosts::nccl, nullptr, nullptr, {});
      FAIL() << "expected a refusal";
    } catch (const ConfigurationError& error) {  // no wait for the other ranks, and status 78
      EXPECT_THAT(error.what(), AllOf(HasSubstr(fmt::format("[rank {}] srun started", rank)),
                                      HasSubstr("ZERO_JOB_SECRET=$(openssl rand -hex 32)")));
    }
  }
}

TEST(JobSecret, RanksStartWithOneAndWithout) {
  check_starts(3);
  const Scratch folder;
  for (const std::string& secret :
       {"ZERO_JOB_SECRET=" + kWords, "ZERO_JOB_SECRET_FILE=" + secret_file(folder, kWords)}) {
    const Variable set(secret);
    check_starts(3);
  }
}

}  // namespace
}  // namespace zero::testing
