// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
// Ranks of zero_generate that die, are stopped, or wait, beside ranks of the same host.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <unistd.h>

#include <filesystem>

#include "launch/watch/doctor.h"
#include "tests/launch/generate_fixture.h"

namespace zero {
namespace {

using ::testing::AnyOf;
using ::testing::ContainsRegex;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;
using namespace testing;

/// Two ranks that variables tell where they meet.
class GenerateWatchdog : public Generate {
 protected:
  /// The command of a rank.
  std::string rank(int number, const std::string& arguments) const {
    return fmt::format(
        "env RANK={0} LOCAL_RANK={0} WORLD_SIZE=2 LOCAL_WORLD_SIZE=2 MASTER_ADDR=127.0.0.1 "
        "MASTER_PORT={1} {2} --threads 1 {3}",
        number, port_, command(), arguments);
  }
  Outcome script(const std::string& text) const {
    return shell(folder_, "bash " + folder_.write("job.sh", text));
  }
  /// Starts both with many prompts, whose processes are $r0 and $r1, waits for the first answer and
  /// runs `disturb`.
  Outcome disturbed(const std::string& disturb, const std::string& arguments = "") const {
    const std::string prompts = " --file " + long_file() + " ";
    return script(rank(0, arguments + prompts) + " & r0=$!\n" + rank(1, arguments + prompts) +
                  " & r1=$!\nwhile [ ! -s " + folder_.path("stdout.txt") +
                  " ] && kill -0 $r0; do sleep 0.05; done; " + disturb +
                  "\nwait $r0; first=$?; wait $r1; echo $first $? >" + folder_.path("status"));
  }
  /// Of both, behind a script that wrote them.
  std::string statuses() const { return folder_.read("status"); }

 private:
  static int next_port() {
    static int port = 18000 + static_cast<int>(::getpid() % 1500);
    return port++;
  }
  const int port_ = next_port();
};

int count_of(const std::string& text, const std::string& words) {
  int count = 0;
  for (auto at = text.find(words); at != std::string::npos; at = text.find(words, at + 1)) ++count;
  return count;
}

TEST_F(GenerateWatchdog, TellsOnceOfAKilledRankWithItsPlace) {
  for (const int dies : {1, 0}) {
    const Outcome outcome = disturbed(fmt::format("kill -KILL $r{}", dies));
    EXPECT_EQ(statuses(), dies == 0 ? "137 1\n" : "1 137\n") << outcome.errors;
    EXPECT_THAT(outcome.errors,
                ContainsRegex(fmt::format("zero_generate: rank {} ended without a word: by SIGKILL"
                                          ".*it was in .(prefill|decode|between steps). of step "
                                          "[0-9]+; .*its last collective, [a-z_]+.[^)]*. #[0-9]+",
                                          dies)));
    EXPECT_EQ(count_of(outcome.errors, "zero_generate: rank "), 1) << outcome.errors;
    EXPECT_THAT(outcome.errors, Not(HasSubstr("zero_generate: [rank ")));
  }
}

TEST_F(GenerateWatchdog, TellsOfAStoppedRankAndEndsIt) {
  const Outcome outcome = disturbed("kill -STOP $r1", "--hang-timeout 1 ");
  EXPECT_EQ(statuses(), "1 137\n") << outcome.errors;
  EXPECT_THAT(outcome.errors, ContainsRegex("rank 1 .*is stopped"));
  EXPECT_EQ(count_of(outcome.errors, "zero_generate: rank"), 1) << outcome.errors;
}

// Each rank that waits finds out for itself.
TEST_F(GenerateWatchdog, IsLeftOutOnDemand) {
  const Outcome outcome = disturbed("kill -KILL $r1", "--no-watchdog ");
  EXPECT_THAT(statuses(), ContainsRegex("^[1-9][0-9]* 137\n")) << outcome.errors;
  EXPECT_THAT(outcome.errors, ContainsRegex("zero_generate: .*rank 1"));
  EXPECT_THAT(outcome.errors, Not(HasSubstr("ended without a word")));
}

// Both while they meet for the prompt and by the limits of collectives.
TEST_F(GenerateWatchdog, APromptThatIsLongInComingIsNoHang) {
  const std::string limits = "--hang-timeout 1 --collective-warning 0.3 --max-tokens 20 ";
  const Outcome outcome =
      script(rank(1, limits) + " & r1=$!\n(sleep 4; printf The) | " + rank(0, limits) +
             "\nfirst=$?; wait $r1; echo $first $? >" + folder_.path("status"));
  EXPECT_EQ(statuses(), "0 0\n") << outcome.errors;
  EXPECT_EQ(outcome.out, text("--prompt The --max-tokens 20"));
  EXPECT_THAT(outcome.errors, Not(HasSubstr("waiting for")));
}

// Eight seconds are enough for a wait of three.
TEST_F(GenerateWatchdog, AnOrderToEndTellsForWhomTheJobWaits) {
  const std::string flight = folder_.path("flight");
  const std::string arguments = "--flight-folder " + flight + " ";
  const std::string pipe = folder_.path("pipe");
  const Outcome outcome = script(
      "mkfifo " + pipe + "; exec 3<>" + pipe + "\n" + rank(1, arguments) + " & r1=$!\n" +
      rank(0, arguments) + " <" + pipe + " & r0=$!\nuntil [ -e " + flight +
      "/*/rank_00001.flight ] || ! kill -0 $r0; do sleep 0.1; done; sleep 8; kill -TERM $r0\n" +
      "wait $r0; first=$?; wait $r1; echo $first $? >" + folder_.path("status"));
  EXPECT_EQ(statuses(), "143 1\n") << outcome.errors;
  EXPECT_THAT(outcome.errors,
              ContainsRegex("ended by SIGTERM\n[^\n]*rank 1 has waited for [0-9.]+ s for rank 0, "
                            "which is in .prompts. before the first step\n"));
}

// As cat, whose reader has seen enough; nobody calls that a fault.
TEST_F(GenerateWatchdog, AReaderThatLeavesEndsAllRanksInSilence) {
  const std::string prompts = "--file " + long_file();
  const Outcome outcome =
      script(rank(1, prompts) + " & r1=$!\n(" + rank(0, prompts) + "; echo $? >" +
             folder_.path("first") + ") | head -c 3\nwait $r1; echo $(cat " +
             folder_.path("first") + ") $? >" + folder_.path("status"));
  // The other rank is through, and ends well, if the first writes only then.
  EXPECT_THAT(statuses(), AnyOf("141 1\n", "141 0\n")) << outcome.errors;
  EXPECT_THAT(outcome.errors, Not(HasSubstr("ended")));
  EXPECT_THAT(outcome.errors, Not(HasSubstr("standard output")));
}

TEST_F(GenerateWatchdog, FlightFilesStayAfterAFaultAlone) {
  const std::string flight = folder_.path("flight");
  const std::string arguments = "--flight-folder " + flight + " ";
  const Outcome outcome = disturbed("kill -KILL $r1", arguments);
  EXPECT_EQ(statuses(), "1 137\n") << outcome.errors;
  const Examination found = examine(flight);
  ASSERT_EQ(found.ranks.size(), 2U);
  for (const FlightState& rank : found.ranks) EXPECT_GT(rank.step, 0);
  EXPECT_THAT(found.ranks[0].last_words.text, HasSubstr("rank 1 ended without a word"));
  EXPECT_EQ(found.diagnosis.what, Diagnosis::What::death);
  EXPECT_THAT(found.diagnosis.culprits, ElementsAre(1));

  const Outcome good = generate(arguments + "--local-ranks 2 --prompt The --max-tokens 9");
  EXPECT_EQ(good.status, 0) << good.errors;
  EXPECT_FALSE(std::filesystem::exists(flight)) << "it goes with a job that ends well";
}

TEST_F(GenerateWatchdog, RefusesFoldersThatItMayNotTakeAndFlagsThatExclude) {
  folder_.write("file", "");
  const std::string job = "--local-ranks 2 --prompt The ";
  EXPECT_THAT(refusal(job + "--flight-folder " + folder_.path("file/in")),
              HasSubstr("--flight-folder: cannot create the folder " + folder_.path("file/in")));
  const Outcome alone = generate("--prompt The --flight-folder " + folder_.path("none"));
  EXPECT_EQ(alone.status, 1);
  EXPECT_THAT(alone.errors, HasSubstr("flight files are of several ranks, which others wait for, "
                                      "and there is one; leave it out"));
  EXPECT_THAT(refusal(job + "--hang-timeout 0.5"),
              HasSubstr("is 0.5; expected 1 to 1e+06 s, or 0"));
  EXPECT_THAT(refusal(job + "--hang-timeout nan"),
              HasSubstr("is nan; expected 1 to 1e+06 s, or 0"));
  EXPECT_THAT(refusal(job + "--collective-warning nan"),
              HasSubstr("expected 0.001 to 86400 s, or 0"));
  EXPECT_THAT(refusal(job + "--no-watchdog --hang-timeout 9"),
              HasSubstr("--no-watchdog excludes --hang-timeout"));
}

TEST_F(GenerateWatchdog, RanksAgreeOnIt) {
  const Outcome outcome =
      script(rank(1, "--prompt The --no-watchdog") + " & r1=$!\n" + rank(0, "--prompt The") +
             "\nfirst=$?; wait $r1; echo $first $? >" + folder_.path("status"));
  EXPECT_EQ(statuses(), "1 1\n") << outcome.errors;
  EXPECT_THAT(outcome.errors, ContainsRegex("--no-watchdog.*(left out|given)"));
}

}  // namespace
}  // namespace zero
