// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#include "launch/watch/doctor.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <nlohmann/json.hpp>
#include <vector>

#include "launch/flight/flight_file.h"
#include "launch/flight/flight_folder.h"
#include "launch/flight/flight_layout.h"
#include "launch/flight/flight_trace.h"
#include "launch/watch/last_words.h"
#include "tests/errors.h"
#include "tests/launch/doctor_flights.h"
#include "tests/launch/shell.h"
#include "tests/scratch.h"

namespace zero::testing {
namespace {

using ::testing::AllOf;
using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;
using ::testing::StartsWith;
using Json = nlohmann::json;

std::string behind_first_line(const std::string& text) { return text.substr(text.find('\n') + 1); }

TEST(Doctor, NamesTheRankThatOthersWaitFor) {
  const Scratch folder;
  Flights flights(folder);
  flights.enter(0, "h.1", -20);
  flights.enter(2, "h.1", -20);
  flights.of(1).write_stack("#0 gelu");
  flights.of(2).compute("h.0", Phase::backward);
  flights.close();
  const Examination found = examine(folder.path());
  EXPECT_FALSE(found.goes_on);
  EXPECT_FALSE(found.ended_well());
  EXPECT_EQ(found.diagnosis.what, Diagnosis::What::hang);
  EXPECT_THAT(found.diagnosis.culprits, ElementsAre(1));
  const std::string text = text_of(found);
  EXPECT_THAT(text, AllOf(StartsWith(folder.path() + ": 3 of 3 ranks, in step 12, written at "),
                          HasSubstr("rank 1 has not entered reduce_scatter(h.1) #1 of group shard "
                                    "of step 12, in which ranks 0, 2 have waited for"),
                          HasSubstr("rank 1 is in \"backward\" of step 12; its last compute was "
                                    "backward h.1\n"),
                          HasSubstr("rank 1's stack:\n  #0 gelu\n")));
  const nlohmann::ordered_json json = json_of(found);
  EXPECT_EQ(json.at("run"), "0000000000000005");
  EXPECT_EQ(json.at("fault").at("what"), "hang");
  EXPECT_EQ(json.at("fault").at("culprits"), nlohmann::ordered_json::array({1}));
  EXPECT_EQ(json.at("ranks").size(), 3U);
  EXPECT_EQ(json.at("ranks").at(0).at("open").at(0).at("name"), "reduce_scatter(h.1)");
  EXPECT_EQ(json.at("ranks").at(1).at("stack"), "#0 gelu");
}

TEST(Doctor, ARunThatGoesOnIsNoFault) {
  const Scratch folder;
  Flights flights(folder);
  flights.of(1).mean_step(1e6);  // five of them have not passed in the time of a test
  flights.enter(0, "h.1", 0);
  const Examination found = examine(folder.path());
  EXPECT_TRUE(found.goes_on);
  EXPECT_EQ(found.diagnosis.what, Diagnosis::What::nothing);
  EXPECT_THAT(text_of(found), HasSubstr("the run goes on: no rank has waited for long\n"));
}

TEST(Doctor, AProcessThatIsGoneWhileOthersRunHasDied) {
  const Scratch folder;
  Flights flights(folder);
  flights.close(2);
  const Examination found = examine(folder.path());
  EXPECT_EQ(found.diagnosis.what, Diagnosis::What::death);
  EXPECT_THAT(found.diagnosis.culprits, ElementsAre(2));
  EXPECT_THAT(text_of(found),
              HasSubstr(fmt::format("rank 2 is gone: its process, {}, runs no more", ::getpid())));
}

TEST(Doctor, TellsOfAMismatch) {
  const Scratch folder;
  Flights flights(folder);
  flights.enter(0, "h.1", 0);
  flights.enter(1, "h.0", 0);
  flights.enter(2, "h.1", 0);
  const Examination found = examine(folder.path());
  EXPECT_EQ(found.diagnosis.what, Diagnosis::What::mismatch) << "even of a run that goes on";
  EXPECT_EQ(json_of(found).at("fault").at("what"), "mismatch");
}

TEST(Doctor, TellsThatAllEndedWell) {
  const Scratch folder;
  Flights flights(folder);
  for (int rank = 0; rank < 3; ++rank) flights.of(rank).end();
  for (const int rank : {0, 1}) flights.of(rank).write_last_words(finding_words());
  flights.close();
  const Examination found = examine(folder.path());
  EXPECT_EQ(found.diagnosis.what, Diagnosis::What::nothing);
  EXPECT_THAT(
      text_of(found),
      AllOf(HasSubstr("all ranks with a file here have ended in good order\n"),
            HasSubstr("last words of rank 0: rank 1 hangs\n"), Not(HasSubstr("of rank 1:"))));
}

TEST(Doctor, AnErrorThatAllRanksKnowIsAFault) {
  const Scratch folder;
  Flights flights(folder);
  for (int rank = 0; rank < 3; ++rank) {
    flights.of(rank).end();
    flights.of(rank).write_last_words(error_words("step 12: the loss is NaN"));
  }
  flights.close();
  const Examination found = examine(folder.path());
  EXPECT_FALSE(found.ended_well());
  EXPECT_THAT(found.diagnosis.culprits, IsEmpty());
  EXPECT_EQ(json_of(found).at("fault").at("what"), "error");
  EXPECT_EQ(behind_first_line(text_of(found)),
            "ranks 0-2 ended by an error: step 12: the loss is NaN\n");
}

TEST(Doctor, AnErrorOfOneRankIsToldOnceWithItsPlace) {
  const Scratch folder;
  Flights flights(folder);
  flights.enter(0, "h.1", 0);
  flights.of(0).write_last_words(follower_words());
  flights.of(1).write_last_words(error_words("no room"));
  flights.close();
  const Examination found = examine(folder.path());
  EXPECT_EQ(found.diagnosis.what, Diagnosis::What::error);
  EXPECT_THAT(found.diagnosis.culprits, ElementsAre(1));
  EXPECT_THAT(text_of(found), AllOf(HasSubstr("\nrank 1 ended by an error: no room; until then it "
                                              "was in \"backward\" of step 12"),
                                    Not(HasSubstr("last words")), Not(HasSubstr("ended because"))));
}

/// What the doctor says of three ranks that are gone, behind the first line.
std::string text_behind_words(const LastWords& of_first, const LastWords& of_last) {
  const Scratch folder;
  Flights flights(folder);
  flights.of(0).write_last_words(of_first);
  flights.of(2).write_last_words(of_last);
  flights.close();
  return behind_first_line(text_of(examine(folder.path())));
}

TEST(Doctor, AnErrorThatAnotherFaultHasOutrunIsToldOnce) {
  const std::string line = "rank 1 ended without a word";
  const std::string outrun = "rank 2 had failed itself: no room";
  LastWords died = words_of({.what = Diagnosis::What::death, .culprits = {1}, .lines = {line}});
  LastWords followed = follower_words();
  followed.own_error = "no room";
  died.own_error = "no disk";
  EXPECT_EQ(
      text_behind_words(died, followed),
      "last words of rank 0: " + line + "\nrank 0 had failed itself: no disk\n" + outrun + "\n");
  died = words_of({.what = Diagnosis::What::death, .culprits = {1}, .lines = {line, outrun}});
  EXPECT_EQ(text_behind_words(died, followed),
            "last words of rank 0: " + line + "\n" + outrun + "\n");
  // Of a process that was killed before its watchdog left words.
  EXPECT_EQ(text_behind_words({}, outrun_words("no room")), outrun + "\n");
}

TEST(Doctor, ARankThatWaitedForTooLongIsNotToBlame) {
  const Scratch folder;
  Flights flights(folder);
  for (const int rank : {0, 2}) {
    flights.enter(rank, "h.1", -20);
    flights.of(rank).write_last_words(error_words(fmt::format(
        "[rank {}] all_gather(h.1): waiting for 12 s for rank 1 (a thread), the timeout of "
        "collectives; find out what holds each of them up",
        rank)));
  }
  flights.close();
  const Examination found = examine(folder.path());
  EXPECT_EQ(found.diagnosis.what, Diagnosis::What::hang);
  EXPECT_THAT(found.diagnosis.culprits, ElementsAre(1));
  EXPECT_THAT(text_of(found),
              AllOf(HasSubstr("last words of rank 0: ended by an error: [rank 0] all_gather(h.1)"),
                    Not(HasSubstr("last words of rank 2")), HasSubstr("rank 1 has not entered")));
}

TEST(Doctor, WhatAWatchdogToldIsNotToldTwice) {
  const Scratch folder;
  Flights flights(folder);
  flights.enter(0, "h.1", 0);
  flights.enter(2, "h.1", 0);
  flights.of(0).write_last_words(words_of({.what = Diagnosis::What::hang,
                                           .culprits = {1},
                                           .lines = {"rank 1 has not entered X"},
                                           .waited_seconds = 4}));
  flights.of(1).write_last_words(follower_words());
  flights.close();
  const Examination found = examine(folder.path());
  EXPECT_THAT(found.diagnosis.culprits, ElementsAre(1)) << "for programs";
  EXPECT_EQ(behind_first_line(text_of(found)), "last words of rank 0: rank 1 has not entered X\n");
}

TEST(Doctor, NamesStragglers) {
  const Scratch folder;
  Flights flights(folder);
  // Rank 1 is last by 3 s (others wait for 3 s and 2 s), then rank 2 by 1 s (both wait for 1 s).
  const std::vector<std::vector<double>> starts{{1, 4, 2}, {6, 6, 7}};
  for (const std::vector<double>& each : starts) {
    for (int rank = 0; rank < 3; ++rank) {
      flights.leave(rank, flights.enter(rank, "h.1", each[static_cast<std::size_t>(rank)]), 8);
    }
  }
  flights.enter(0, "h.0", 9);  // which not all have entered
  for (int rank = 0; rank < 3; ++rank) flights.of(rank).end();
  flights.close();
  const Examination found = examine(folder.path());
  ASSERT_EQ(found.stragglers.ranks.size(), 2U);
  EXPECT_EQ(found.stragglers.collectives, 2);
  EXPECT_NEAR(found.stragglers.seconds, 7, 1e-6);
  EXPECT_EQ(found.stragglers.ranks[0].rank, 1);
  EXPECT_NEAR(found.stragglers.ranks[0].share, 5.0 / 7, 1e-6);
  EXPECT_EQ(found.stragglers.ranks[1].rank, 2);
  EXPECT_EQ(found.stragglers.ranks[1].last, 1);
  EXPECT_THAT(text_of(found),
              HasSubstr("waits: 7.000 s in 2 collectives, by the rank that came last:\n"
                        "  rank 1: 71.4 %, last 1 time\n  rank 2: 28.6 %, last 1 time\n"));
}

TEST(Doctor, WritesATraceOfAllRanks) {
  const Scratch folder;
  Flights flights(folder);
  flights.leave(0, flights.enter(0, "h.1", 1), 2);
  flights.enter(1, "h.1", 1.5);
  flights.close();
  const Examination found = examine(folder.path());
  write_flight_trace(rings_of(found), folder.path("trace.json"));
  const Json trace = Json::parse(folder.read("trace.json"));
  std::vector<std::string> spans;
  for (const Json& event : trace.at("traceEvents")) {
    if (event.at("ph") != "X") continue;
    EXPECT_GE(event.at("ts").get<double>(), 0);
    spans.push_back(
        fmt::format("{} {}", event.at("pid").get<int>(), event.at("name").get<std::string>()));
  }
  EXPECT_THAT(spans, AllOf(Contains("0 backward of step 12"), Contains("0 backward h.1"),
                           Contains("0 reduce_scatter(h.1)"),
                           Contains("1 reduce_scatter(h.1) (open)"), Contains("2 backward h.1")));
  EXPECT_THAT(error_of([&] { write_flight_trace(rings_of(found), folder.path("none/t")); }),
              HasSubstr("--trace: cannot write"));
}

TEST(Doctor, FindsTheFilesInACheckpointFolder) {
  const Scratch folder;
  std::filesystem::create_directory(folder.path("flight"));
  FlightFile::create(folder.path("flight/rank_00000.flight"), 0, 1).end();
  EXPECT_EQ(examine(folder.path()).folder, folder.path("flight"));
}

TEST(Doctor, NamesWhatItCannotRead) {
  const Scratch folder;
  EXPECT_THAT(error_of([&] { examine(folder.path("none")); }),
              HasSubstr("none: cannot be read: No such file or directory; give the folder of"));
  std::filesystem::create_directory(folder.path("flight"));
  std::filesystem::create_directory(folder.path("step_00000001.partial"));
  EXPECT_THAT(error_of([&] { examine(folder.path()); }),
              StartsWith(folder.path() + ": has no flight files (rank_00000.flight and so on), and "
                                         "no checkpoint"));
  folder.write("rank_00001.flight", "cut");
  EXPECT_THAT(error_of([&] { examine(folder.path()); }),
              HasSubstr("rank_00001.flight: has 3 bytes, too few for a flight file"));
  FlightFile::create(folder.path("rank_00000.flight"), 0, 3).end();
  const Examination found = examine(folder.path());
  EXPECT_THAT(found.missing, ElementsAre(1, 2));
  EXPECT_THAT(text_of(found),
              AllOf(HasSubstr("1 of 3 ranks"), HasSubstr("rank_00001.flight: has 3 bytes"),
                    HasSubstr("2 of 3 files are missing or cannot be read: nothing can be said of "
                              "ranks 1-2; copy the files of all hosts here")));
}

// As an interrupt of a start leaves them.
TEST(Doctor, RanksWhoseFilesAreHalfMadeHaveNotBegun) {
  const Scratch folder;
  folder.write(flight_file_name(0), "");
  folder.write(flight_file_name(1), std::string(flight::Offsets({}).end, '\0'));
  Examination found = examine(folder.path());
  EXPECT_THAT(found.not_begun, ElementsAre(0, 1));
  EXPECT_EQ(found.diagnosis.what, Diagnosis::What::nothing);
  EXPECT_FALSE(found.goes_on);
  EXPECT_FALSE(found.ended_well());
  EXPECT_THAT(text_of(found), AllOf(StartsWith(folder.path() + ": ranks 0-1 have not begun: "),
                                    HasSubstr("; ask again in a few seconds; if no process")));
  EXPECT_EQ(json_of(found).at("not_begun"), nlohmann::ordered_json::array({0, 1}));
  EXPECT_EQ(json_of(found).at("problems").at(1),
            folder.path("rank_00001.flight") + ": is half made: the rank has not begun");
  const Scratch output;
  EXPECT_EQ(shell(output, std::string(ZERO_DOCTOR) + " " + folder.path()).status, 0);
  FlightFile::create(folder.path(flight_file_name(0)), 0, 3).end();
  found = examine(folder.path());
  EXPECT_THAT(found.not_begun, ElementsAre(1));
  EXPECT_THAT(found.missing, ElementsAre(2));
  EXPECT_THAT(text_of(found),
              AllOf(HasSubstr("1 of 3 ranks"), HasSubstr("\nrank 1 has not begun: "),
                    HasSubstr("nothing can be said of rank 2; copy")));
}

// All ranks have made their files before one comes to a step.
TEST(Doctor, AFileThatIsHalfMadeBesideStepsWasEmptied) {
  const Scratch folder;
  Flights flights(folder);
  flights.close();
  folder.write(flight_file_name(1), "");
  const Examination found = examine(folder.path());
  EXPECT_THAT(found.not_begun, IsEmpty());
  EXPECT_THAT(found.missing, ElementsAre(1));
  const std::string emptied = folder.path("rank_00001.flight") + ": was emptied";
  EXPECT_THAT(json_of(found).at("problems").at(0).get<std::string>(), StartsWith(emptied));
  EXPECT_THAT(text_of(found), AllOf(HasSubstr("\n" + emptied), Not(HasSubstr("has not begun")),
                                    HasSubstr("nothing can be said of rank 1;")));
}

TEST(Doctor, RefusesFilesOfTwoRuns) {
  const Scratch folder;
  FlightFile::create(folder.path("rank_00000.flight"), 0, 2, 1).end();
  FlightFile::create(folder.path("rank_00001.flight"), 1, 2, 2).end();
  EXPECT_THAT(error_of([&] { examine(folder.path()); }),
              AllOf(HasSubstr("are of two runs (0000000000000001 of 2 ranks, 0000000000000002 of "
                              "2); move the files of one of them elsewhere"),
                    HasSubstr("rank_00000.flight and "), HasSubstr("rank_00001.flight")));
  FlightFile::create(folder.path("rank_00001.flight"), 0, 2, 1).end();
  EXPECT_THAT(error_of([&] { examine(folder.path()); }), HasSubstr("are both of rank 0"));
}

TEST(Doctor, AsAProgram) {
  const Scratch folder;
  {
    Flights flights(folder, 2);
    flights.enter(0, "h.1", -20);
  }
  const Scratch output;
  const std::string doctor = ZERO_DOCTOR;
  const Outcome fault =
      shell(output, doctor + " " + folder.path() + " --trace " + output.path("t.json"));
  EXPECT_EQ(fault.status, 1) << fault.errors;
  EXPECT_THAT(fault.out, HasSubstr("rank 1 has not entered reduce_scatter(h.1) #1"));
  EXPECT_NO_THROW(Json::parse(output.read("t.json")));
  const Outcome json = shell(output, doctor + " --json " + folder.path());
  EXPECT_EQ(json.status, 1);
  EXPECT_EQ(Json::parse(json.out).at("fault").at("culprits"), Json::array({1}));
  const Outcome none = shell(output, doctor + " " + folder.path("none"));
  EXPECT_EQ(none.status, 2);
  EXPECT_THAT(none.complaints("zero_doctor"),
              ElementsAre(HasSubstr("none: cannot be read: No such file or directory")));
  Flights well(folder, 2);
  for (int rank = 0; rank < 2; ++rank) well.of(rank).end();
  EXPECT_EQ(shell(output, doctor + " " + folder.path()).status, 0);
}

}  // namespace
}  // namespace zero::testing
