// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
// Flight files whose folder needs a server: they lie in memory, and their places have links.
#include "tests/launch/flight_places.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <linux/magic.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <filesystem>
#include <string>
#include <vector>

#include "base/descriptor.h"
#include "base/host.h"
#include "collectives/backends.h"
#include "launch/flight/flight_file.h"
#include "launch/flight/flight_folder.h"
#include "launch/flight/flight_place.h"
#include "launch/flight/flight_reader.h"
#include "launch/process/open_files.h"
#include "launch/train/plan.h"
#include "launch/watch/doctor.h"
#include "tests/collectives/recorder.h"
#include "tests/device/supervised_thread.h"
#include "tests/errors.h"
#include "tests/launch/config_with.h"
#include "tests/scratch.h"

namespace zero::testing {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::SizeIs;
using ::testing::StartsWith;

TEST_F(FlightPlaces, AreInMemoryWhereAPageMayWaitForAServer) {
  constexpr std::int64_t kCeph = 0x00c36400;
  constexpr std::int64_t kLustre = 0x0bd00bd0;
  constexpr std::int64_t kUnknown = 0x12345678;
  for (const std::int64_t type : {std::int64_t{NFS_SUPER_MAGIC}, std::int64_t{SMB_SUPER_MAGIC},
                                  std::int64_t{FUSE_SUPER_MAGIC}, std::int64_t{V9FS_MAGIC}, kCeph,
                                  kLustre, kUnknown, std::int64_t{0}}) {
    FlightFile file = create_alone(memory_on(type));
    EXPECT_THAT(file.path(), StartsWith(memory_.path("zero_flight."))) << type;
    EXPECT_EQ(file.place(), place(0));
    struct stat status {};
    ASSERT_EQ(::stat(file.path().c_str(), &status), 0);
    EXPECT_EQ(status.st_mode & 0777, 0600U);
    EXPECT_LT(std::filesystem::file_size(place(0)), 1024U) << "a link";
    EXPECT_EQ(flight_file_at(place(0)), file.path());
    file.end_and_remove();
    EXPECT_THAT(memory_.names(), IsEmpty()) << "nothing is left after a good end";
    EXPECT_FALSE(std::filesystem::exists(folder()));
  }
  for (const std::int64_t type : {std::int64_t{EXT4_SUPER_MAGIC}, std::int64_t{XFS_SUPER_MAGIC},
                                  std::int64_t{BTRFS_SUPER_MAGIC}, std::int64_t{TMPFS_MAGIC},
                                  std::int64_t{OVERLAYFS_SUPER_MAGIC}}) {
    FlightFile file = create_alone(memory_on(type));
    EXPECT_EQ(file.path(), place(0)) << type;
    EXPECT_THAT(memory_.names(), IsEmpty());
    file.end_and_remove();
  }
}

TEST_F(FlightPlaces, TheDoctorFindsTheFilesOfAJobThatWasKilledWhole) {
  run_and_kill();
  const Examination found = examine(server_.path());
  ASSERT_THAT(found.ranks, SizeIs(2));
  EXPECT_EQ(found.ranks[1].step, 7);
  EXPECT_FALSE(found.goes_on);
  EXPECT_THAT(memory_.names(), SizeIs(2)) << "examining changes nothing";
  local::run(2, [&](Communicator& ranks) {
    FlightFile file = create(ranks, memory_on());
    file.phase(1, "forward");
    all_meet(ranks);
    if (ranks.rank() == 0) {
      EXPECT_THAT(memory_.names(), SizeIs(2)) << "the next run replaces them";
      EXPECT_NE(FlightReader(file.address()).read().run, found.ranks[0].run);
    }
    all_meet(ranks);
    file.end_and_remove();
  });
  EXPECT_THAT(memory_.names(), IsEmpty());
  EXPECT_FALSE(std::filesystem::exists(folder()));
}

TEST_F(FlightPlaces, ALaterRunOfFewerRanksClearsAllThatAKilledOneLeft) {
  run_and_kill();
  run_well();
  EXPECT_THAT(memory_.names(), IsEmpty());
  EXPECT_FALSE(std::filesystem::exists(folder()));
}

TEST_F(FlightPlaces, AFullMemoryIsToldOfOnceAndLeavesTheFileWithoutAName) {
  const std::string supervised =
      on_supervised_thread(SYS_fallocate, first_calls_end_with(ENOSPC), [&] {
        const auto alone = local::single();
        FlightFile file = create(*alone, memory_on());
        EXPECT_EQ(file.path(), "");
        EXPECT_THAT(memory_.names(), IsEmpty());
        EXPECT_THAT(flight_warning(file, *alone, *cpu::open()),
                    AllOf(HasSubstr("flight files: 1 of 1 are without a name"),
                          HasSubstr("No space left on device")));
        const Examination found = examine(folder());
        EXPECT_TRUE(found.goes_on) << "found by the link to the process's open file";
        keep_flight_files(file, nullptr);
        EXPECT_EQ(flight_file_at(place(0)), place(0)) << "a copy outlasts the process";
      });
  if (supervised == kNoSupervision) GTEST_SKIP() << supervised;
  EXPECT_EQ(supervised, "no error");
}

TEST(FlightPlace, AFileWithoutANameCannotBeCut) {
  const FlightFile file = FlightFile::create("", 0, 1);
  EXPECT_NE(::truncate(file.address().c_str(), 0), 0);
  EXPECT_EQ(std::filesystem::file_size(file.address()), file.bytes());
}

TEST_F(FlightPlaces, WithoutAFileSystemInMemoryToo) {
  FlightMemory none = memory_on();
  none.folder = memory_.path("none");
  const auto alone = local::single();
  FlightFile file = create(*alone, none);
  EXPECT_THAT(file.obstacle(), HasSubstr("none is no file system in memory"));
  file.end_and_remove();
  EXPECT_FALSE(std::filesystem::exists(folder()));
}

TEST_F(FlightPlaces, RanksWithNothingToTellExchangeNoTexts) {
  local::run(2, [&](Communicator& ranks) {
    FlightFile file = create(ranks, memory_on());
    const Recorder recorder(ranks);
    EXPECT_EQ(flight_warning(file, ranks, *cpu::open()), "");
    std::vector<Operation> operations;
    for (const CollectiveRecord& each : recorder.records()) operations.push_back(each.operation);
    EXPECT_THAT(operations, ElementsAre(Operation::all_reduce));
    all_meet(ranks);
    file.end_and_remove();
  });
}

TEST_F(FlightPlaces, TheFirstRankTellsOfAFileWithoutANameOnAnother) {
  local::run(2, [&](Communicator& ranks) {
    FlightFile file =
        create(ranks, ranks.rank() == 0 ? memory_on() : memory_in(memory_.path("none")));
    const std::string warning = flight_warning(file, ranks, *cpu::open());
    if (ranks.rank() == 0) {
      EXPECT_THAT(warning, AllOf(HasSubstr("1 of 2 are without a name"), HasSubstr("(rank 1: ")));
    } else {
      EXPECT_EQ(warning, "");
    }
    all_meet(ranks);
    file.end_and_remove();
  });
}

TEST_F(FlightPlaces, OfARunThatGoesOnAreRefused) {
  for (const bool named : {true, false}) {
    FlightMemory memory = memory_on();
    if (!named) memory.folder = "/none";
    const FlightFile file = create_alone(memory);
    const std::vector<std::string> runs = run_folders(folder());
    EXPECT_THAT(error_of([&] { create_alone(memory_on()); }),
                HasSubstr(file.place() + " is the file of a run that goes on"))
        << named;
    EXPECT_EQ(run_folders(folder()), runs);
  }
}

TEST_F(FlightPlaces, ALinkNamesTheHostWhereTheFileIs) {
  std::filesystem::create_directory(folder());
  const auto refusal = [&](const FlightLink& link) {
    std::filesystem::remove(place(0));
    link.write(place(0));
    return error_of([&] { examine(folder()); });
  };
  EXPECT_THAT(refusal({.path = "/dev/shm/a", .host = "nid7", .boot = "b"}),
              HasSubstr("the file is in memory of host nid7, /dev/shm/a: run zero_doctor there"));
  EXPECT_THAT(refusal({.path = "/dev/shm/a", .host = host_name(), .boot = "b"}),
              HasSubstr("which has started anew since: it is lost"));
  EXPECT_THAT(refusal({.path = "/none/a", .host = host_name(), .boot = boot_id()}),
              HasSubstr("/none/a, cannot be read: No such file"));
  for (const char* const text : {"", "[1]", "{\"path\": 3}", "{\"pa"}) {
    write_bytes(place(0), "ZERO flight link\n" + std::string(text));
    EXPECT_FALSE(FlightLink::read(place(0))) << text;
  }
}

TEST_F(FlightPlaces, NoLinkHasAnotherFileRemoved) {
  const std::string notes = server_.write("notes", "mine");
  FlightFile::create(server_.path("other.flight"), 0, 1).end();
  for (const std::string& path : {notes, server_.path("other.flight")}) {
    const std::string place = earlier_run() + "/" + flight_file_name(0);
    FlightLink{.path = path, .host = host_name(), .boot = boot_id()}.write(place);
    const Descriptor used(::open(path.c_str(), O_RDWR | O_CLOEXEC));
    ASSERT_EQ(lock_file(used.get()), 0);
    run_well();  // whoever locks what is no flight file's memory
    EXPECT_TRUE(std::filesystem::exists(path)) << path;
    EXPECT_FALSE(FlightLink::read(place)) << path;
  }
}

TEST_F(FlightPlaces, ARankThatHasNoneLeavesNoneOfTheOthers) {
  write_bytes(server_.path("file"), "mine");
  for (const std::int64_t type : {std::int64_t{NFS_SUPER_MAGIC}, std::int64_t{EXT4_SUPER_MAGIC}}) {
    local::run(2, [&](Communicator& ranks) {
      const std::string where = ranks.rank() == 0 ? folder() : server_.path("file");
      EXPECT_THAT(
          error_of([&] { create_flight_file({where}, ranks, *cpu::open(), memory_on(type)); }),
          HasSubstr("cannot create the folder " + server_.path("file")));
    });
    EXPECT_THAT(memory_.names(), IsEmpty());
    EXPECT_FALSE(std::filesystem::exists(folder())) << type;
  }
}

// Who may write to /dev/shm may give a file this user's name, and cut it while it is read.
TEST_F(FlightPlaces, AnotherUsersFileInMemoryIsNotRead) {
  if (::geteuid() != 0) GTEST_SKIP() << "only root gives a file away";
  const std::string path = path_in_memory(memory_.path(), 1, 0);
  {
    const FlightFile file = FlightFile::create(path, 0, 1, 1);
    const MappedFile map(file.descriptor(), file.bytes(), MappedFile::Access::write, "file");
    reinterpret_cast<flight::Header*>(map.begin())->created = 0;
  }
  ASSERT_EQ(::chown(path.c_str(), 1, 1), 0);
  create_alone(memory_on()).end_and_remove();
  EXPECT_TRUE(std::filesystem::exists(path)) << "an old one of this user would go";
}

/// The path of a file that a run has left in `memory`.
std::string left_days_ago(const Scratch& memory, std::uint64_t run, int days) {
  const std::string path = path_in_memory(memory.path(), run, 0);
  const FlightFile file = FlightFile::create(path, 0, 1, run);
  const MappedFile map(file.descriptor(), file.bytes(), MappedFile::Access::write, "file");
  reinterpret_cast<flight::Header*>(map.begin())->created -=
      std::int64_t{days} * 24 * 3600 * 1'000'000'000;
  return path;
}

TEST_F(FlightPlaces, FilesThatNobodyAsksForGoAfterAWeek) {
  const std::string young = left_days_ago(memory_, 1, 6);
  const std::string old = left_days_ago(memory_, 2, 8);
  create_alone(memory_on()).end_and_remove();
  EXPECT_TRUE(std::filesystem::exists(young));
  EXPECT_FALSE(std::filesystem::exists(old));
}

/// Makes the file one of a version that this build does not read, last written so many days ago.
void make_unreadable(const std::string& path, int days) {
  {
    const Descriptor file(::open(path.c_str(), O_RDWR | O_CLOEXEC));
    const MappedFile map(file.get(), sizeof(flight::Header), MappedFile::Access::write, "file");
    reinterpret_cast<flight::Header*>(map.begin())->version += 1;
  }
  const auto now = std::filesystem::file_time_type::clock::now();
  std::filesystem::last_write_time(path, now - std::chrono::hours(24 * days));
}

TEST_F(FlightPlaces, FilesOfAnotherVersionGoAWeekAfterTheyWereWritten) {
  const std::string young = left_days_ago(memory_, 1, 8);
  const std::string old = left_days_ago(memory_, 2, 6);
  const FlightFile of_run = FlightFile::create(path_in_memory(memory_.path(), 3, 0), 0, 1, 3);
  make_unreadable(young, 6);
  make_unreadable(old, 8);
  make_unreadable(of_run.path(), 8);
  EXPECT_THAT(error_of([&] { FlightReader reader(old); }), HasSubstr(old));
  create_alone(memory_on()).end_and_remove();
  EXPECT_TRUE(std::filesystem::exists(young));
  EXPECT_FALSE(std::filesystem::exists(old));
  EXPECT_TRUE(std::filesystem::exists(of_run.path())) << "its run goes on";
}

TEST_F(FlightPlaces, TheFirstRankOfAHostRemovesThemForAll) {
  const Scratch of_second;
  const std::string old = left_days_ago(memory_, 1, 8);
  const std::string other = left_days_ago(of_second, 1, 8);
  local::run(2, [&](Communicator& ranks) {
    create(ranks, ranks.rank() == 0 ? memory_on() : memory_in(of_second.path())).end_and_remove();
  });
  EXPECT_FALSE(std::filesystem::exists(old));
  EXPECT_TRUE(std::filesystem::exists(other)) << "the second has looked for none";
}

// The first rank may not have removed them yet.
TEST_F(FlightPlaces, ARankThatTheyLeaveNoRoomRemovesThemItself) {
  const std::string can = on_supervised_thread(SYS_fallocate, first_calls_end_with(ENOSPC), [] {});
  if (can == kNoSupervision) GTEST_SKIP() << can;
  const Scratch of_second;
  const std::string old = left_days_ago(of_second, 1, 8);
  const auto create_second = [&](Communicator& ranks) {
    FlightFile file = create(ranks, memory_in(of_second.path()));
    EXPECT_THAT(file.path(), StartsWith(of_second.path("zero_flight.")));
    EXPECT_FALSE(std::filesystem::exists(old));
    file.end_and_remove();
  };
  local::run(2, [&](Communicator& ranks) {
    if (ranks.rank() == 0) return create(ranks, memory_on()).end_and_remove();
    EXPECT_EQ(on_supervised_thread(SYS_fallocate, first_calls_end_with(ENOSPC),
                                   [&] { create_second(ranks); }),
              "no error");
  });
}

TEST_F(FlightPlaces, AndTheirBytesAreInThePlan) {
  const FlightFile file = create_alone(memory_on());
  const Plan plan = make_plan(config_with({}), BackendKind::local);
  EXPECT_EQ(plan.flight_file, static_cast<std::int64_t>(file.bytes()));
  EXPECT_EQ(plan.json().at("flight_file"), plan.flight_file);
  EXPECT_THAT(plan.text(), HasSubstr("flight file"));
}

}  // namespace
}  // namespace zero::testing
