// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
// Which folders zero_doctor takes, and what it says of those without flight files or with old ones.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <ctime>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <string>

#include "launch/flight/flight_file.h"
#include "launch/flight/flight_folder.h"
#include "launch/flight/run_folders.h"
#include "launch/watch/doctor.h"
#include "tests/errors.h"
#include "tests/launch/doctor_flights.h"
#include "tests/launch/saved_checkpoints.h"
#include "tests/launch/shell.h"
#include "tests/scratch.h"

namespace zero::testing {
namespace {

using ::testing::AllOf;
using ::testing::ContainsRegex;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::StartsWith;

// A start that failed before its flight files were made leaves the same folder as a good end.
TEST(DoctorsFolder, WithoutFlightFilesTellsOfNoGoodEnd) {
  const Saved saved(2);
  const Examination found = examine(saved.folder());
  EXPECT_EQ(found.diagnosis.what, Diagnosis::What::nothing);
  EXPECT_FALSE(found.ended_well());
  EXPECT_THAT(text_of(found),
              AllOf(StartsWith(saved.folder() + ": no flight files: no run that has begun goes on "
                                                "here, and the last that got as far as step 1 was "
                                                "ended by no fault"),
                    HasSubstr("the newest checkpoint is of step 2\n"), Not(HasSubstr("well"))));
  const nlohmann::ordered_json json = json_of(found);
  EXPECT_TRUE(json.at("ended_well").is_null());
  EXPECT_TRUE(json.at("written").is_null());
  EXPECT_EQ(json.at("newest_checkpoint"), 2);
}

TEST(DoctorsFolder, WithFlightFilesTellsItsNewestCheckpointToo) {
  const Saved saved(2);
  const std::string flight = saved.folder() + "/flight";
  std::filesystem::create_directory(flight);
  FlightFile::create(flight + "/" + flight_file_name(0), 0, 1).end();
  for (const std::string& folder : {saved.folder(), flight, flight + "/"}) {
    const nlohmann::ordered_json json = json_of(examine(folder));
    EXPECT_EQ(json.at("newest_checkpoint"), 2) << folder;
    EXPECT_EQ(json.at("ended_well"), true) << folder;
  }
  saved.damage(2, "index.json");
  EXPECT_EQ(json_of(examine(flight)).at("newest_checkpoint"), 1);
  std::filesystem::remove_all(saved.at(1));
  EXPECT_TRUE(json_of(examine(flight)).at("newest_checkpoint").is_null());
}

TEST(DoctorsFolder, OfSeveralRunsIsJudgedByTheNewest) {
  const Saved saved(2);
  const std::string flight = saved.folder() + "/flight";
  const auto run_at = [&](std::int64_t time) {
    const std::string folder =
        flight + "/" + run_folder_name(time, static_cast<std::uint64_t>(time));
    std::filesystem::create_directories(folder);
    const std::string place = folder + "/" + flight_file_name(0);
    FlightFile::create(place, 0, 1, static_cast<std::uint64_t>(time)).end();
    if (time == 1'000) note_first_step(place);
    return folder;
  };
  const std::string crash = run_at(1'000);
  for (const std::string& folder : {saved.folder(), flight, crash, crash + "/"}) {
    const Examination found = examine(folder);
    EXPECT_EQ(found.ranks.at(0).run, 1'000U) << folder;
    EXPECT_EQ(found.newest_checkpoint, 2) << folder;
    EXPECT_THAT(text_of(found), Not(HasSubstr("earlier"))) << folder;
  }
  const std::string start = run_at(2'000);
  EXPECT_THAT(text_of(examine(flight)), HasSubstr("first step: zero_doctor " + crash + "\n"));
  const std::string last = run_at(3'000);
  std::filesystem::create_directory(flight + "/" + run_folder_name(4'000, 0));
  for (const std::string& folder : {saved.folder(), flight}) {
    const Examination found = examine(folder);
    EXPECT_EQ(found.folder, last);
    EXPECT_EQ(found.earlier, crash) << "and not the start between";
  }
  std::filesystem::remove_all(crash);
  EXPECT_EQ(examine(flight).earlier, start);
}

TEST(DoctorsFolder, TellsWhenFilesOfARunThatIsOverWereWritten) {
  const Scratch folder;
  Flights flights(folder);
  flights.of(1).phase(13, "forward");
  EXPECT_THAT(text_of(examine(folder.path())), Not(HasSubstr("written at")));
  flights.close();
  const Examination found = examine(folder.path());
  EXPECT_THAT(text_of(found),
              ContainsRegex(": 3 of 3 ranks, in step 13 [^\n]*, written at [0-9][0-9]:[0-9][0-9]:"
                            "[0-9][0-9], [0-9]* s ago\n"));
  const auto now = static_cast<double>(std::time(nullptr));
  EXPECT_NEAR(json_of(found).at("written").get<double>(), now, 60);
  Examination old = examine(folder.path());
  old.written -= std::int64_t{200} * 1'000'000'000;
  EXPECT_THAT(text_of(old), ContainsRegex(", 3 min [0-9]* s ago\n"));
  old.written -= std::int64_t{49} * 3600 * 1'000'000'000;
  EXPECT_THAT(text_of(old), ContainsRegex("written at 20[0-9-]* [0-9:]*, 2 d 01 h ago\n"));
}

TEST(DoctorsFolder, AroundThoseOfRunsNamesThem) {
  const Scratch folder;
  for (const char* const name : {"a", "a/flight", "b", "c"}) {
    std::filesystem::create_directory(folder.path(name));
  }
  for (const char* const name : {"a/flight/", "b/"}) {
    FlightFile::create(folder.path(name) + flight_file_name(0), 0, 1).end();
  }
  folder.write("file", "");
  EXPECT_THAT(error_of([&] { examine(folder.path()); }),
              HasSubstr(fmt::format("give one of the folders in it that have flight files: {}, {}",
                                    folder.path("a"), folder.path("b"))));
}

TEST(DoctorsFolder, ThatHasNothingIsAnErrorForProgramsToo) {
  const Scratch folder;
  const Scratch output;
  const Outcome none = shell(output, std::string(ZERO_DOCTOR) + " --json " + folder.path());
  EXPECT_EQ(none.status, 2);
  EXPECT_THAT(nlohmann::json::parse(none.out).at("error").get<std::string>(),
              StartsWith(folder.path() + ": has no flight files"));
  EXPECT_THAT(none.errors, HasSubstr("has no flight files")) << "for people";
}

}  // namespace
}  // namespace zero::testing
