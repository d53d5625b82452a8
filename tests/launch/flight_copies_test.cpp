// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
// Copies of flight files from memory to the folder that needs a server, at a bad end.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <csignal>
#include <cstddef>
#include <filesystem>
#include <string>
#include <string_view>
#include <thread>

#include "base/error.h"
#include "collectives/backends.h"
#include "launch/flight/flight_file.h"
#include "launch/flight/flight_folder.h"
#include "launch/flight/flight_place.h"
#include "launch/flight/flight_reader.h"
#include "launch/process/exit_status.h"
#include "launch/watch/doctor.h"
#include "launch/watch/process_faults.h"
#include "launch/watch/run_faults.h"
#include "tests/device/supervised_thread.h"
#include "tests/launch/fake_ranks.h"
#include "tests/launch/flight_places.h"
#include "tests/launch/flight_states.h"
#include "tests/scratch.h"

namespace zero::testing {
namespace {

using ::testing::Each;
using ::testing::Field;
using ::testing::IsEmpty;
using ::testing::SizeIs;

using FlightCopies = FlightPlaces;

constexpr std::chrono::milliseconds kLong{600'000};

TEST_F(FlightCopies, ACopyReplacesTheLinkAndWhatItNamed) {
  FlightFile file = create_alone(memory_on());
  file.write_last_words({.kind = LastWords::Kind::finding, .text = "rank 1 hangs"});
  const FlightCopy copy = file.copy().value();
  EXPECT_EQ(FlightReader(file.address()).whole(), copy.bytes) << "what a peer copies";
  keep_flight_files(file, nullptr);
  EXPECT_EQ(file_bytes(place(0)), copy.bytes);
  EXPECT_THAT(memory_.names(), IsEmpty());
  EXPECT_THAT(examine(folder()).ranks, SizeIs(1));
  file.write_last_words({.kind = LastWords::Kind::finding, .text = "later"});
  EXPECT_TRUE(keep_copies({file.copy().value()}, kLong));
  EXPECT_EQ(file_bytes(place(0)), copy.bytes) << "the first copy stays";
  file.end_and_remove();
  EXPECT_EQ(file_bytes(place(0)), copy.bytes) << "it is no link of this file any more";
  EXPECT_FALSE(std::filesystem::exists(part_of(place(0))));
}

TEST_F(FlightCopies, ASurvivorCopiesWhatADeadRankLeft) {
  const auto copied = [&](bool ended, bool over) {
    bool copied = false;
    const std::size_t before = memory_.names().size();
    local::run(2, [&](Communicator& ranks) {
      FlightFile file = create(ranks, memory_on());
      if (ranks.rank() == 1 && over) file.end();
      all_meet(ranks);
      if (ranks.rank() == 0) {
        const FlightReader other(flight_file_at(place(1)));
        FakeRanks peers;
        peers.show(1, other);
        if (ended) peers.end(1);
        keep_flight_files(file, &peers);
        EXPECT_EQ(flight_file_at(place(0)), place(0)) << "its own too";
        copied = !FlightLink::read(place(1));
        EXPECT_THAT(memory_.names(), SizeIs(before + (copied ? 0 : 1)));
        EXPECT_THAT(examine(folder()).ranks, SizeIs(2));
      }
      all_meet(ranks);
    });
    return copied;
  };
  EXPECT_TRUE(copied(true, false));
  EXPECT_FALSE(copied(false, false)) << "it copies its file itself";
  EXPECT_FALSE(copied(true, true)) << "it ended well, or has copied its file";
}

TEST_F(FlightCopies, FilesInTheirPlacesNeedNoCopy) {
  FlightFile file = create_alone(memory_on(EXT4_SUPER_MAGIC));
  EXPECT_FALSE(file.copy());
  keep_flight_files(file, nullptr);
  EXPECT_EQ(flight_file_at(place(0)), place(0));
  EXPECT_TRUE(keep_copies({}, kLong));
}

TEST_F(FlightCopies, WithoutRoomForACopyTheLinkStays) {
  FlightFile file = create_alone(memory_on());
  {
    const FileSizeLimit limit(4096);
    EXPECT_FALSE(keep_copies({file.copy().value()}, kLong));
  }
  EXPECT_EQ(flight_file_at(place(0)), file.path());
  EXPECT_FALSE(std::filesystem::exists(part_of(place(0))));
}

// A run of another host ended well, and knew of this one no more than that it was not on its host.
TEST_F(FlightCopies, AreMadeWhereTheirLinksAreGone) {
  FlightFile file = create_alone(memory_on());
  const std::string place = file.place();
  std::filesystem::remove_all(folder());
  keep_flight_files(file, nullptr);
  EXPECT_EQ(FlightReader(place).read().rank, 0);
  EXPECT_THAT(memory_.names(), IsEmpty());
}

// A server that does not answer.
TEST_F(FlightCopies, ACopyThatBlocksDoesNotHoldUpTheEnd) {
  std::atomic<bool> ended{false};
  FlightFile file = create_alone(memory_on());
  const auto blocks = [&](const SystemCall& asked) {
    const std::string_view path(reinterpret_cast<const char*>(asked.arguments[1]));  // NOLINT
    while (path.ends_with(".part") && !ended) std::this_thread::yield();
    return asked.run();
  };
  bool kept = true;
  const std::string supervised = on_supervised_thread(SYS_openat, blocks, [&] {
    kept = keep_copies({file.copy().value()}, std::chrono::milliseconds(1));
    ended = true;
    while (FlightLink::read(place(0))) std::this_thread::yield();  // the thread goes on alone
  });
  if (supervised == kNoSupervision) GTEST_SKIP() << supervised;
  EXPECT_EQ(supervised, "no error");
  EXPECT_FALSE(kept);
  EXPECT_THAT(examine(folder()).ranks, SizeIs(1));
}

TEST_F(FlightCopies, ASignalHasAllRanksOfAProcessMakeTheirs) {
  ProcessFaults process("zero_train", 0);
  local::run(2, [&](Communicator& ranks) {
    RunFaults faults(ranks, create(ranks, memory_on()), std::nullopt);
    const ProcessFaults::Joined joined(process, faults);
    all_meet(ranks);
    // People are told first: a launcher may leave no time for copies.
    const auto tell = [&] { EXPECT_TRUE(FlightLink::read(place(0)).has_value()); };
    if (ranks.rank() == 0) process.end_by(SIGTERM, tell);
    all_meet(ranks);
    EXPECT_EQ(flight_file_at(place(ranks.rank())), place(ranks.rank()));
  });
  EXPECT_THAT(memory_.names(), IsEmpty());
  const Examination found = examine(folder());
  EXPECT_THAT(found.ranks, SizeIs(2));
  EXPECT_THAT(found.ranks,
              Each(Field(&FlightState::last_words, Field(&LastWords::text, "ended by SIGTERM"))));
}

TEST_F(FlightCopies, ASignalRemovesTheFilesOfRanksThatHaveNotBegun) {
  for (const bool linked : {false, true}) {
    ProcessFaults process("zero_train", 0);
    local::run(2, [&](Communicator& ranks) {
      const ProcessFaults::Starting starting(process, folder(), ranks.rank());
      FlightFile file =
          linked ? create(ranks, memory_on())
                 : FlightFile::create(earlier_run() + "/" + flight_file_name(ranks.rank()),
                                      ranks.rank(), ranks.size());
      all_meet(ranks);
      EXPECT_TRUE(process.any());
      if (ranks.rank() == 0) process.end_by(SIGINT, [] {});
      all_meet(ranks);
    });
    EXPECT_FALSE(process.any());
    EXPECT_THAT(memory_.names(), IsEmpty());
    EXPECT_FALSE(std::filesystem::exists(folder()));
  }
}

// Of an earlier run.
TEST_F(FlightCopies, ASignalLeavesTheFilesOfOthers) {
  ProcessFaults process("zero_train", 0);
  const std::string place = earlier_run() + "/" + flight_file_name(0);
  FlightFile::create(place, 0, 1).end();
  const ProcessFaults::Starting first(process, folder(), 0);
  const ProcessFaults::Starting none(process, folder(), 1);
  const ProcessFaults::Starting in_memory_alone(process, "", 0);
  process.end_by(SIGINT, [] {});
  EXPECT_TRUE(std::filesystem::exists(place));
}

// Its message ends the process, with the other ranks' threads.
TEST_F(FlightCopies, AnErrorOfOneRankHasAllRanksOfAProcessMakeTheirs) {
  ProcessFaults process("zero_train", 0);
  local::run(2, [&](Communicator& ranks) {
    RunFaults faults(ranks, create(ranks, memory_on()), std::nullopt);
    const ProcessFaults::Joined joined(process, faults);
    all_meet(ranks);
    if (ranks.rank() == 1) {
      EXPECT_EQ(process.failing(&faults, Error("no room")), "no room");
    }
    all_meet(ranks);
    EXPECT_EQ(flight_file_at(place(ranks.rank())), place(ranks.rank()));
  });
  EXPECT_THAT(memory_.names(), IsEmpty());
  EXPECT_EQ(FlightReader(place(1)).read().last_words, error_words("no room"));
}

TEST_F(FlightCopies, TheWatchdogOfOneRankHasAllRanksOfAProcessMakeTheirs) {
  const auto end_by_watchdog = [&] {
    ProcessFaults process("zero_train", 0);
    local::run(2, [&](Communicator& ranks) {
      RunFaults faults(ranks, create(ranks, memory_on()), std::nullopt);
      const ProcessFaults::Joined joined(process, faults);
      all_meet(ranks);
      if (ranks.rank() == 0) process.watchdog(60).end();
      all_meet(ranks);
    });
    ::_exit(exit_status::kOk);
  };
  EXPECT_EXIT(end_by_watchdog(), ::testing::ExitedWithCode(exit_status::kFault), "");
  for (const int rank : {0, 1}) EXPECT_EQ(flight_file_at(place(rank)), place(rank));
  EXPECT_THAT(memory_.names(), IsEmpty());
}

}  // namespace
}  // namespace zero::testing
