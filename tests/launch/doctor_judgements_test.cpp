// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
// What zero_doctor makes of the last words of ranks: for programs the same as for people.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>

#include "collectives/backends.h"
#include "collectives/call.h"
#include "launch/watch/doctor.h"
#include "launch/watch/last_words.h"
#include "launch/watch/run_faults.h"
#include "tests/launch/doctor_flights.h"
#include "tests/scratch.h"

namespace zero::testing {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;
using ::testing::StartsWith;
using OrderedJson = nlohmann::ordered_json;
using What = Diagnosis::What;

TEST(Judgement, IsReadAsItWasWritten) {
  const Diagnosis found{.what = What::hang,
                        .culprits = {0, 3, 4, 5, 12},
                        .lines = {"rank 0 waits", "", "  #0 gelu"},
                        .waited_seconds = 3.25};
  const LastWords words = words_of(found);
  EXPECT_EQ(words.text, "rank 0 waits\n\n  #0 gelu");
  const auto read = diagnosis_in(words);
  ASSERT_TRUE(read);
  EXPECT_EQ(read->what, found.what);
  EXPECT_EQ(read->culprits, found.culprits);
  EXPECT_EQ(read->lines, found.lines);
  EXPECT_EQ(read->waited_seconds, found.waited_seconds);
  const auto nobody = diagnosis_in(words_of({.what = What::hang, .lines = {"all wait"}}));
  ASSERT_TRUE(nobody);
  EXPECT_THAT(nobody->culprits, IsEmpty());
}

TEST(Judgement, OtherWordsAreNone) {
  for (const LastWords& words : {LastWords(), signal_words(), outrun_words("no room"),
                                 follower_words(), error_words("found hang: rank 1")}) {
    EXPECT_FALSE(diagnosis_in(words)) << words.text;
  }
}

// The position of rank 2 looks like its fault; it waits for nobody, since rank 1 has died.
TEST(Judgement, OfAWatchdogIsTheDoctors) {
  const Scratch folder;
  Flights flights(folder);
  flights.enter(0, "h.1", -20);
  flights.enter(1, "h.1", -20);
  const std::string line = "rank 1 ended without a word: by SIGKILL, a crash or the like";
  flights.of(0).write_last_words(
      words_of({.what = What::death, .culprits = {1}, .lines = {line}, .waited_seconds = 0.5}));
  flights.of(2).write_last_words(follower_words());
  flights.close();
  const OrderedJson json = json_of(examine(folder.path()));
  EXPECT_EQ(json.at("fault").at("what"), "death");
  EXPECT_EQ(json.at("fault").at("culprits"), OrderedJson::array({1}));
  EXPECT_EQ(json.at("fault").at("lines"), OrderedJson::array({line}));
  EXPECT_EQ(json.at("fault").at("waited_seconds"), 0.5);
  EXPECT_EQ(json.at("ranks").at(0).at("last_words"), line);
}

TEST(Judgement, OfSeveralWatchdogsHasTheCulpritsOfAll) {
  const Scratch folder;
  Flights flights(folder);
  flights.of(0).write_last_words(
      words_of({.what = What::hang, .culprits = {2}, .lines = {"rank 2 hangs"}}));
  flights.of(1).write_last_words(
      words_of({.what = What::death, .culprits = {1, 2}, .lines = {"rank 2 died"}}));
  flights.close();
  const Examination found = examine(folder.path());
  EXPECT_EQ(found.diagnosis.what, What::death);
  EXPECT_THAT(found.diagnosis.culprits, ElementsAre(1, 2));
  EXPECT_THAT(found.diagnosis.lines, ElementsAre("rank 2 hangs", "rank 2 died"));
}

// The rank that tells of it has done what most ranks did.
TEST(Judgement, OfCallsThatDifferBlamesTheFewNotTheTeller) {
  const Scratch folder;
  const std::string sentence =
      "rank 1 calls reduce_scatter(h.1), the other 2 ranks reduce_scatter(ln_f)";
  local::run(3, [&](Communicator& ranks) {
    const int rank = ranks.rank();
    RunFaults faults(ranks, FlightFile::create(folder.path(flight_file_name(rank)), rank, 3, 5),
                     std::nullopt);
    if (rank != 2) return;
    EXPECT_EQ(faults.failing(CallsDiffer(rank, sentence, {1})), "[rank 2] " + sentence);
  });
  const Examination found = examine(folder.path());
  const OrderedJson fault = json_of(found).at("fault");
  EXPECT_EQ(fault.at("what"), "mismatch");
  EXPECT_EQ(fault.at("culprits"), OrderedJson::array({1}));
  EXPECT_EQ(fault.at("lines"), OrderedJson::array({sentence}));
  EXPECT_THAT(text_of(found), HasSubstr("\nlast words of rank 2: " + sentence + "\n"));
}

// Neither hides the other.
TEST(Judgement, StandsBesideAnErrorOfAnotherRank) {
  const Scratch folder;
  Flights flights(folder);
  flights.of(0).write_last_words(
      words_of({.what = What::death, .culprits = {2}, .lines = {"rank 2 died"}}));
  flights.of(1).write_last_words(error_words("no room"));
  flights.close();
  const Examination found = examine(folder.path());
  EXPECT_EQ(found.diagnosis.what, What::error);
  EXPECT_THAT(text_of(found), HasSubstr("last words of rank 0: rank 2 died\n"));
  EXPECT_THAT(text_of(found), HasSubstr("rank 1 ended by an error: no room"));
}

// Some rank is always the last to come: the moment of the end says nothing.
TEST(Judgement, OfRanksThatAllWentBlamesNobodyForAShortWait) {
  const Scratch folder;
  Flights flights(folder);
  for (const int rank : {1, 2}) flights.enter(rank, "h.1", -0.004);
  flights.close();
  const Examination found = examine(folder.path());
  EXPECT_EQ(found.diagnosis.what, What::death);
  EXPECT_THAT(found.diagnosis.culprits, IsEmpty());
  EXPECT_THAT(text_of(found),
              AllOf(HasSubstr("no rank told of a fault: the job was probably ended from outside"),
                    HasSubstr("look at the logs of launcher and scheduler"),
                    Not(HasSubstr("has not entered"))));
}

// Five mean steps are no hang, however long they are; and a timeout that people gave is one.
TEST(Judgement, KnowsHowLongAHangIs) {
  for (const bool slow : {false, true}) {
    for (const bool overdue : {false, true}) {
      const Scratch folder;
      Flights flights(folder);
      if (slow) flights.of(1).mean_step(1e6);
      for (const int rank : {1, 2}) flights.enter(rank, "h.1", -20);
      if (overdue) {
        flights.of(2).write_last_words(error_words(
            "[rank 2] all_gather(h.1): waiting for 12 s for rank 0 (a thread), the timeout of "
            "collectives; find out what holds each of them up"));
      }
      flights.close();
      const Examination found = examine(folder.path());
      EXPECT_EQ(found.diagnosis.what, slow && !overdue ? What::death : What::hang);
      EXPECT_EQ(found.diagnosis.culprits.empty(), slow && !overdue);
    }
  }
}

TEST(Judgement, BlamesNoRankWhoseFileIsMissing) {
  for (const double waited : {0.004, 20.0}) {
    const Scratch folder;
    Flights flights(folder);
    flights.enter(1, "h.1", -waited);
    flights.close();
    for (const int rank : {0, 2}) std::filesystem::remove(folder.path(flight_file_name(rank)));
    const Examination found = examine(folder.path());
    EXPECT_EQ(found.diagnosis.what, waited > 1 ? What::hang : What::death);
    EXPECT_THAT(found.diagnosis.culprits, IsEmpty());
    const std::string text = text_of(found);
    EXPECT_THAT(text, AllOf(HasSubstr("2 of 3 files are missing or cannot be read: nothing can be "
                                      "said of ranks 0, 2; copy the files of all hosts here"),
                            Not(HasSubstr("entered")), Not(HasSubstr("ended from outside"))));
    EXPECT_EQ(text.find("in reduce_scatter(h.1) #1 of group shard, for ranks 0, 2\n") !=
                  std::string::npos,
              waited > 1)
        << text;
  }
}

// The file of the rank that told is lost; which rank ended first the others' words show.
TEST(Judgement, NamesRanksWithoutLastWordsWhereOthersFollowed) {
  const Scratch folder;
  Flights flights(folder);
  flights.of(2).write_last_words(follower_words());
  flights.close();
  std::filesystem::remove(folder.path(flight_file_name(0)));
  const Examination found = examine(folder.path());
  EXPECT_EQ(found.diagnosis.what, What::death);
  EXPECT_THAT(text_of(found),
              AllOf(HasSubstr("last words of rank 2: ended because rank 0 told of a fault"),
                    HasSubstr("\nrank 1 has left no last words, as ranks that follow do")));
}

// One that is here is to blame all the same.
TEST(Judgement, BlamesTheOthersBesideIt) {
  const Scratch folder;
  Flights flights(folder);
  flights.enter(1, "h.1", -20);
  flights.close();
  std::filesystem::remove(folder.path(flight_file_name(2)));
  const Examination found = examine(folder.path());
  EXPECT_THAT(found.diagnosis.culprits, ElementsAre(0));
  EXPECT_THAT(found.diagnosis.lines.front(), StartsWith("rank 0 has not entered"));
}

TEST(Judgement, ASignalOfPeopleIsNoFault) {
  const Scratch folder;
  Flights flights(folder);
  for (int rank = 0; rank < 3; ++rank) flights.enter(rank, "h.1", 0);
  flights.of(0).write_last_words(signal_words(LastWords::Kind::told_signal));
  flights.of(1).write_last_words(signal_words());
  flights.close();
  const Examination found = examine(folder.path());
  EXPECT_EQ(found.diagnosis.what, What::nothing);
  EXPECT_THAT(text_of(found), HasSubstr("\nended by SIGTERM; no fault\n"));
  EXPECT_EQ(json_of(found).at("ranks").at(0).at("last_words"), "ended by SIGTERM");
}

// Its process was killed before it could tell.
TEST(Judgement, AnErrorThatWasOutrunIsTheFaultIfNobodyKnowsAnother) {
  const Scratch folder;
  Flights flights(folder);
  flights.of(2).write_last_words(outrun_words("no room"));
  flights.close();
  const Examination found = examine(folder.path());
  EXPECT_EQ(found.diagnosis.what, What::error);
  EXPECT_THAT(found.diagnosis.culprits, ElementsAre(2));
  EXPECT_THAT(found.diagnosis.lines, ElementsAre("rank 2 had failed itself: no room"));
  EXPECT_EQ(json_of(found).at("ranks").at(2).at("own_error"), "no room");
}

// Ranks load for as long as they like, and others wait for them.
TEST(Judgement, ASignalBeforeTheFirstStepIsNoFault) {
  const Scratch folder;
  Flights flights(folder);
  for (int rank = 0; rank < 3; ++rank) flights.of(rank).phase(-1, "load");
  for (const int rank : {1, 2}) flights.enter(rank, "h.1", -20);
  for (int rank = 0; rank < 3; ++rank) {
    flights.of(rank).write_last_words(signal_words(LastWords::Kind::told_signal));
  }
  flights.close();
  const Examination found = examine(folder.path());
  EXPECT_EQ(found.diagnosis.what, What::nothing);
  EXPECT_THAT(text_of(found), HasSubstr("\nended by SIGTERM before the first step; no fault\n"));
}

/// What the doctor finds where ranks of a run that goes on have waited for rank 0, in `phase`.
Examination found_behind(std::string_view phase, files::DiskCalls calls) {
  const Scratch folder;
  Flights flights(folder);
  flights.of(0).phase(12, phase);
  flights.of(0).disk_calls(calls);
  for (const int rank : {1, 2}) flights.enter(rank, "h.1", -14);
  return examine(folder.path());
}

TEST(Judgement, ADiskThatHoldsUpARunIsNoHang) {
  for (const char* const phase : {"load", "save", "end"}) {
    const Examination found = found_behind(phase, {.begun = 94, .ended = 93});
    EXPECT_EQ(found.diagnosis.what, What::nothing) << phase;
    EXPECT_THAT(text_of(found),
                AllOf(HasSubstr("\nrank 0 is in a call to the disk, and others have waited for it "
                                "for 14."),
                      HasSubstr(" s; the run goes on\n"), Not(HasSubstr("no rank has waited"))));
    EXPECT_EQ(json_of(found).at("fault").at("culprits"), OrderedJson::array());
    EXPECT_EQ(found_behind(phase, {.begun = 94, .ended = 94}).diagnosis.what, What::hang) << phase;
  }
  EXPECT_EQ(found_behind("backward", {.begun = 94, .ended = 93}).diagnosis.what, What::hang);
}

// Once its process is gone no disk will let it go on.
TEST(Judgement, ARankThatDiedInACallToTheDiskIsAFault) {
  const Scratch folder;
  Flights flights(folder);
  flights.of(0).phase(12, "load");
  flights.of(0).disk_calls({.begun = 94, .ended = 93});
  for (const int rank : {1, 2}) flights.enter(rank, "h.1", -14);
  flights.close(0);
  EXPECT_EQ(examine(folder.path()).diagnosis.what, What::death);
  flights.close();
  EXPECT_EQ(examine(folder.path()).diagnosis.what, What::hang);
}

// People end a job that hangs.
TEST(Judgement, ASignalThatEndsAHangHidesNone) {
  const Scratch folder;
  Flights flights(folder);
  for (const int rank : {1, 2}) flights.enter(rank, "h.1", -20);
  for (int rank = 0; rank < 3; ++rank) flights.of(rank).write_last_words(signal_words());
  flights.close();
  const Examination found = examine(folder.path());
  EXPECT_EQ(found.diagnosis.what, What::hang);
  EXPECT_THAT(found.diagnosis.culprits, ElementsAre(0));
}

}  // namespace
}  // namespace zero::testing
