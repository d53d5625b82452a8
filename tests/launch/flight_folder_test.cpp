// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#include "launch/flight/flight_folder.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "collectives/backends.h"
#include "launch/flight/flight_file.h"
#include "launch/watch/doctor.h"
#include "tests/errors.h"
#include "tests/launch/config_with.h"
#include "tests/scratch.h"

namespace zero::testing {
namespace {

using ::testing::AllOf;
using ::testing::EndsWith;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::StartsWith;
using ::testing::UnorderedElementsAre;

TEST(FlightFolder, StandsBesideWhatTheRunKeeps) {
  EXPECT_EQ(flight_folder(config_with({})), "run.log.flight");
  EXPECT_EQ(flight_folder(config_with({"run.log=a/b.log"})), "a/b.log.flight");
  EXPECT_EQ(flight_folder(config_with({"run.log=a", "run.checkpoint.folder=runs"})), "runs/flight");
  EXPECT_EQ(flight_folder(config_with({"run.flight_folder=/dev/shm/f"})), "/dev/shm/f");
  EXPECT_THAT(refusal_with({"run.flight_folder="}),
              ::testing::HasSubstr("run.flight_folder: found \"\", expected a path, \"none\" or "
                                   "null"));
  for (const char* const memory : {"run.log=null", "run.log=/dev/null", "run.flight_folder=none"}) {
    EXPECT_EQ(flight_folder(config_with({memory})), "") << memory;
  }
  EXPECT_EQ(flight_file_name(3), "rank_00003.flight");
  EXPECT_EQ(rank_of_flight_file(flight_file_name(3)), 3);
  for (const char* const other : {"rank_.flight", "rank_x.flight", "rank_-1.flight", "notes"}) {
    EXPECT_EQ(rank_of_flight_file(other), std::nullopt) << other;
  }
}

TEST(FlightFolder, HasTheFilesOfOneRunAlone) {
  const Scratch folder;
  const auto create = [&](int world) {
    local::run(world, [&](Communicator& ranks) {
      create_flight_file({folder.path("deep/flight")}, ranks, *cpu::open()).end();
    });
    return examine(folder.path("deep"));
  };
  const Examination four = create(4);
  EXPECT_EQ(four.ranks.size(), 4U);
  const Examination two = create(2);
  EXPECT_EQ(two.ranks.size(), 2U) << "files of ranks that are no more are gone";
  EXPECT_NE(two.ranks[0].run, four.ranks[0].run);
  EXPECT_THAT(two.missing, IsEmpty());
}

TEST(FlightFolder, FilesOfOthersStay) {
  const Scratch folder;
  folder.write(flight_file_name(1), "not theirs");
  FlightFile::create(folder.path(flight_file_name(2)), 2, 4, 1).end();
  std::optional lives(FlightFile::create(folder.path(flight_file_name(3)), 3, 4, 1));
  const auto alone = local::single();
  const auto run = [&] {
    FlightFile file = create_flight_file({folder.path()}, *alone, *cpu::open());
    file.phase(1, "forward");
    file.end_and_remove();
  };
  EXPECT_THAT(error_of(run), HasSubstr(flight_file_name(3) + " is the file of a run that goes on"));
  EXPECT_THAT(folder.names(),
              UnorderedElementsAre(flight_file_name(1), flight_file_name(2), flight_file_name(3)));
  lives.reset();
  run();
  EXPECT_EQ(folder.read(flight_file_name(1)), "not theirs");
  EXPECT_THAT(folder.names(), UnorderedElementsAre(flight_file_name(1)));
}

TEST(FlightFolder, FailsOnAllRanksIfOneCannotHaveItsFile) {
  const Scratch folder;
  folder.write("rank_00001.flight", "not theirs");
  folder.write("file", "");
  const auto message = [&](const std::string& place) {
    return error_of([&] {
      local::run(2, [&](Communicator& ranks) { create_flight_file({place}, ranks, *cpu::open()); });
    });
  };
  EXPECT_THAT(message(folder.path()), HasSubstr("exists and is no flight file"));
  EXPECT_THAT(message(folder.path("file/in")),
              HasSubstr("run.flight_folder: cannot create the folder " + folder.path("file/in")));
  EXPECT_EQ(folder.read("rank_00001.flight"), "not theirs");
}

TEST(FlightFolder, MessagesHaveTheProgramsOptionAndThePathAsItIs) {
  const Scratch scratch;
  const FlightFolder folder{.path = scratch.path("run.flight_folder"), .option = "--flight-folder"};
  std::filesystem::create_directory(folder.path);
  const std::string place = folder.path + "/" + flight_file_name(0);
  const auto message = [&] {
    const auto alone = local::single();
    return error_of([&] { create_flight_file(folder, *alone, *cpu::open()); });
  };
  write_bytes(place, "not theirs");
  EXPECT_THAT(message(), StartsWith("--flight-folder: " + place + " exists and is no flight file"));
  std::filesystem::remove(place);
  const FlightFile lives = FlightFile::create(place, 0, 1);
  EXPECT_THAT(message(), AllOf(StartsWith("--flight-folder: " + place + " is the file of a run"),
                               EndsWith("give this one another --flight-folder")));
}

TEST(FlightFolder, InMemoryAloneLeavesNoFile) {
  const auto alone = local::single();
  FlightFile file = create_flight_file(FlightFolder{}, *alone, *cpu::open());
  EXPECT_EQ(file.path(), "");
  file.end_and_remove();
}

}  // namespace
}  // namespace zero::testing
