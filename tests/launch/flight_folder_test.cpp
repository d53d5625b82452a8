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
#include "launch/flight/flight_place.h"
#include "launch/flight/run_folders.h"
#include "launch/watch/doctor.h"
#include "tests/errors.h"
#include "tests/launch/config_with.h"
#include "tests/scratch.h"

namespace zero::testing {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::EndsWith;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::SizeIs;
using ::testing::StartsWith;

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
  EXPECT_EQ(two.ranks.size(), 2U);
  EXPECT_NE(two.ranks[0].run, four.ranks[0].run);
  EXPECT_THAT(two.missing, IsEmpty());
}

TEST(FlightFolder, FilesOfOthersStay) {
  const Scratch folder;
  folder.write(flight_file_name(0), "not theirs");
  const std::string earlier = folder.path(run_folder_name(1, 1));
  std::filesystem::create_directory(earlier);
  write_bytes(earlier + "/" + flight_file_name(1), "not theirs");
  FlightFile::create(earlier + "/" + flight_file_name(2), 2, 4, 1).end();
  std::optional lives(FlightFile::create(earlier + "/" + flight_file_name(3), 3, 4, 1));
  const auto alone = local::single();
  const auto run = [&] {
    FlightFile file = create_flight_file({folder.path()}, *alone, *cpu::open());
    file.phase(1, "forward");
    file.end_and_remove();
  };
  EXPECT_THAT(error_of(run), HasSubstr(flight_file_name(3) + " is the file of a run that goes on"));
  EXPECT_THAT(flight_files_in(earlier), SizeIs(3));
  lives.reset();
  run();
  EXPECT_EQ(folder.read(flight_file_name(0)), "not theirs");
  EXPECT_THAT(flight_files_in(earlier), ElementsAre(earlier + "/" + flight_file_name(1)));
}

TEST(FlightFolder, MessagesHaveTheProgramsOptionAndThePathAsItIs) {
  const Scratch scratch;
  const FlightFolder folder{.path = scratch.path("run.flight_folder"), .option = "--flight-folder"};
  const auto message = [&] {
    const auto alone = local::single();
    return error_of([&] { create_flight_file(folder, *alone, *cpu::open()); });
  };
  write_bytes(folder.path, "not theirs");
  EXPECT_THAT(message(), StartsWith("--flight-folder: cannot create the folder " + folder.path));
  std::filesystem::remove(folder.path);
  const auto alone = local::single();
  const FlightFile lives = create_flight_file(folder, *alone, *cpu::open());
  EXPECT_THAT(message(), AllOf(StartsWith("--flight-folder: " + lives.place() + " is the file of"),
                               EndsWith("give this one another --flight-folder")));
}

TEST(FlightFolder, OfRunsAreInOrderWhateverTheClockSays) {
  constexpr std::int64_t kTime = 1'764'611'112'123'456'000;
  const std::string name = run_folder_name(kTime, 0x123);
  EXPECT_EQ(name, "20251201T174512.123456Z.0000000000000123");
  EXPECT_EQ(time_of_run_folder(name), kTime);
  for (const std::string& other : {std::string("step_00000001"), name + "0", name.substr(1),
                                   std::string("20251201T174512.123456Z.000000000000012G")}) {
    EXPECT_FALSE(is_run_folder_name(other)) << other;
  }
  EXPECT_TRUE(is_run_folder_name(name));
  // A clock was ahead.
  const Scratch folder;
  std::filesystem::create_directory(folder.path(run_folder_name(kTime * 2, 0xffff)));
  const auto alone = local::single();
  for (int i = 0; i < 2; ++i) {
    const FlightFile file = create_flight_file({folder.path()}, *alone, *cpu::open());
    EXPECT_EQ(std::filesystem::path(file.place()).parent_path(), run_folders(folder.path()).at(0));
  }
  EXPECT_THAT(run_folders(folder.path()), SizeIs(2)) << "the empty one is gone";
}

TEST(FlightFolder, InMemoryAloneLeavesNoFile) {
  const auto alone = local::single();
  FlightFile file = create_flight_file(FlightFolder{}, *alone, *cpu::open());
  EXPECT_EQ(file.path(), "");
  file.end_and_remove();
}

}  // namespace
}  // namespace zero::testing
