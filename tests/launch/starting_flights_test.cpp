// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
// What an earlier run has left while a new run starts in its folder.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <linux/magic.h>

#include <csignal>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "collectives/backends.h"
#include "collectives/stores.h"
#include "launch/flight/flight_file.h"
#include "launch/flight/flight_place.h"
#include "launch/flight/flight_reader.h"
#include "launch/watch/doctor.h"
#include "launch/watch/process_faults.h"
#include "tests/errors.h"
#include "tests/launch/fake_ranks.h"
#include "tests/launch/flight_places.h"

namespace zero::testing {
namespace {

using ::testing::AllOf;
using ::testing::Each;
using ::testing::EndsWith;
using ::testing::Field;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;
using ::testing::SizeIs;

/// On a disk of the host, and on a server, whose files lie in the host's memory.
class StartingFlights : public FlightPlaces, public ::testing::WithParamInterface<std::int64_t> {
 protected:
  std::string starting() const { return folder() + "/" + std::string(kStartingFlights); }
  bool is_on_server() const { return GetParam() == NFS_SUPER_MAGIC; }
  /// A run of these ranks, which end with the file of each as `end` leaves it.
  void run(int ranks, const std::function<void(FlightFile&)>& end) const {
    local::run(ranks, [&](Communicator& world) {
      FlightFile file = start(world, memory_on(GetParam()));
      file.phase(-1, "start");
      all_meet(world);
      end(file);
      all_meet(world);
    });
  }
  /// A run whose ranks end without a word in step 7. Returns its number.
  std::uint64_t crash(int ranks = 2) const {
    run(ranks, [](FlightFile& file) { file.phase(7, "backward"); });
    return number_in(folder());
  }
  void kill_start(int ranks = 2) const {
    run(ranks, [](FlightFile&) {});
  }
  void refuse_start(int ranks = 2) const {
    run(ranks, [](FlightFile& file) { file.end_and_remove(); });
  }
  static std::uint64_t number_in(const std::string& folder, bool earlier = false) {
    return examine(folder, earlier).ranks.at(0).run;
  }
  /// Expects the whole files of that run in the folder itself, and none of a start.
  void expect_only(std::uint64_t number, std::size_t ranks = 2) const {
    const Examination found = examine(folder());
    EXPECT_EQ(found.folder, folder());
    EXPECT_THAT(found.ranks, AllOf(SizeIs(ranks), Each(Field(&FlightState::run, number))));
    EXPECT_THAT(found.missing, IsEmpty());
    EXPECT_THAT(text_of(found), Not(HasSubstr("earlier")));
    EXPECT_FALSE(std::filesystem::exists(starting()));
    if (is_on_server()) {
      EXPECT_THAT(memory_.names(), SizeIs(ranks));
    }
  }
};

INSTANTIATE_TEST_SUITE_P(Folders, StartingFlights,
                         ::testing::Values(std::int64_t{EXT4_SUPER_MAGIC},
                                           std::int64_t{NFS_SUPER_MAGIC}));

TEST_P(StartingFlights, AreJudgedAndTheEarlierOnesKeptUntilTheFirstStep) {
  const std::uint64_t number = crash(3);
  std::filesystem::permissions(folder(), std::filesystem::perms::all);
  run(2, [&](FlightFile& file) {
    if (file.place() != starting_place(place(0))) return;
    EXPECT_EQ(std::filesystem::status(starting()).permissions(), std::filesystem::perms::all);
    const Examination found = examine(folder());
    EXPECT_NE(found.ranks.at(0).run, number) << "a hang of the start is found";
    EXPECT_THAT(found.ranks, SizeIs(2));
    EXPECT_THAT(text_of(found), EndsWith("zero_doctor " + folder() + " --earlier\n"));
    const Examination before = examine(folder(), true);
    EXPECT_THAT(before.ranks, AllOf(SizeIs(3), Each(Field(&FlightState::step, 7))));
    EXPECT_EQ(before.folder, folder());
  });
  run(2, [&](FlightFile& file) {
    file.phase(-1, "load");
    file.phase(5, "between steps");  // of a run that goes on
    EXPECT_EQ(number_in(folder(), true), number);
    file.phase(6, "forward");
  });
  expect_only(number_in(folder()));
  EXPECT_EQ(examine(folder()).ranks.at(1).step, 6);
}

// Refused, killed, or told to end; with as many ranks, fewer or more.
TEST_P(StartingFlights, OfStartsThatFailReplaceNothing) {
  const std::uint64_t number = crash();
  for (const int ranks : {2, 1, 3}) {
    refuse_start(ranks);
    expect_only(number);
    kill_start(ranks);
    EXPECT_NE(number_in(folder()), number);
    EXPECT_THAT(examine(folder()).ranks, SizeIs(static_cast<std::size_t>(ranks)))
        << "the last start's alone";
    EXPECT_EQ(number_in(folder(), true), number);
    run(ranks, [](FlightFile& file) {
      file.phase(-1, "load");
      file.write_last_words({.kind = LastWords::Kind::error, .text = "another model"});
    });
    EXPECT_EQ(number_in(folder(), true), number);
    refuse_start(ranks);
    expect_only(number);
  }
}

TEST_P(StartingFlights, GoWithTheEarlierOnesAtAGoodEnd) {
  crash(3);
  run(2, [](FlightFile& file) {
    file.phase(-1, "end");  // there was nothing left to do
    file.end_and_remove();
  });
  EXPECT_FALSE(std::filesystem::exists(folder()));
  EXPECT_THAT(memory_.names(), IsEmpty());
}

// One rank has come to its first step.
TEST_P(StartingFlights, AreReadWithThoseThatHaveMoved) {
  crash(3);
  run(2, [&](FlightFile& file) {
    if (file.place() == starting_place(place(1))) file.phase(1, "forward");
  });
  const Examination found = examine(folder());
  EXPECT_THAT(found.ranks, SizeIs(2));
  EXPECT_THAT(found.missing, IsEmpty());
  EXPECT_EQ(found.earlier, folder());
}

TEST_P(StartingFlights, AreRefusedBesideARunThatGoesOn) {
  const std::uint64_t number = crash();
  const auto refusal = [&] { return error_of([&] { create_alone(memory_on(GetParam())); }); };
  run(2, [&](FlightFile& file) {
    if (file.place() != starting_place(place(0))) return;
    EXPECT_THAT(refusal(), HasSubstr(file.place() + " is the file of a run that goes on"));
    EXPECT_EQ(number_in(folder(), true), number);
    EXPECT_THAT(examine(folder()).ranks, SizeIs(2));
  });
  // Its other ranks have died: what they left tells why.
  local::run(2, [&](Communicator& ranks) {
    std::optional<FlightFile> file(create(ranks, memory_on(GetParam())));
    if (ranks.rank() == 0) file.reset();
    all_meet(ranks);
    if (ranks.rank() == 1) {
      EXPECT_THAT(refusal(), HasSubstr(place(1) + " is the file of a run that goes on"));
      EXPECT_THAT(examine(folder()).ranks, SizeIs(2));
      EXPECT_FALSE(std::filesystem::exists(starting()));
    }
    all_meet(ranks);
  });
}

TEST_P(StartingFlights, AreRefusedWhereTheirPlaceIsAnothers) {
  const std::uint64_t number = crash();
  const auto expect_refusal = [&](const std::string& words) {
    EXPECT_THAT(error_of([&] { refuse_start(3); }), HasSubstr(words));
    EXPECT_EQ(number_in(folder(), true), number);
  };
  write_bytes(place(2), "mine");
  expect_refusal(place(2) + " exists and is no flight file");
  EXPECT_EQ(file_bytes(place(2)), "mine");
  std::filesystem::remove(place(2));
  write_bytes(starting(), "mine");
  expect_refusal("cannot create the folder " + starting());
  EXPECT_EQ(file_bytes(starting()), "mine");
  std::filesystem::remove(starting());
  // Of another run, which is none of this one's business.
  const std::string other = server_.path("other");
  std::filesystem::create_directory(other);
  const std::string theirs = other + "/" + flight_file_name(0);
  FlightFile::create(theirs, 0, 1).end();
  std::filesystem::create_directory_symlink(other, starting());
  expect_refusal("cannot create the folder " + starting());
  EXPECT_TRUE(std::filesystem::exists(theirs));
  std::filesystem::remove(starting());
  expect_only(number);
}

// The folder has become another user's, or read-only: the run goes on all the same.
TEST_P(StartingFlights, StayWhereTheyAreIfTheyCannotMove) {
  run(2, [&](FlightFile& file) {
    if (file.place() == starting_place(place(0))) write_bytes(place(0), "mine");
    file.phase(3, "forward");
  });
  EXPECT_EQ(file_bytes(place(0)), "mine");
  EXPECT_EQ(FlightReader(flight_file_at(starting_place(place(0)))).read().step, 3);
}

TEST_P(StartingFlights, GoIfASignalEndsTheStart) {
  const std::uint64_t number = crash(3);
  ProcessFaults process("zero_train", 0);
  local::run(2, [&](Communicator& ranks) {
    const ProcessFaults::Starting entry(process, starting_place(place(ranks.rank())));
    const FlightFile file = start(ranks, memory_on(GetParam()));
    all_meet(ranks);
    if (ranks.rank() == 0) process.end_by(SIGINT, [] {});
    all_meet(ranks);
  });
  expect_only(number, 3);
}

// Each of which has a folder of its own by that name, or the first rank's.
TEST_P(StartingFlights, AreOfAllHosts) {
  const std::vector<std::string> hosts{"a", "b", "b"};
  for (const bool shared : {true, false}) {
    const auto folder_of = [&](int rank) { return folder() + (shared || rank == 0 ? "" : "_b"); };
    const auto run = [&](std::int64_t step) {
      InProcessStore store;
      std::vector<std::jthread> threads;
      for (int rank = 0; rank < 3; ++rank) {
        threads.emplace_back([&, rank, step] {
          const auto world = store_only::world({store, rank, 3}, hosts);
          FlightFile file =
              create_flight_file({folder_of(rank)}, *world, *cpu::open(), memory_on(GetParam()));
          file.phase(step, step < 0 ? "start" : "forward");
          if (step < 0) file.end_and_remove();
        });
      }
    };
    run(7);
    run(-1);
    for (int rank = 0; rank < 3; ++rank) {
      const std::string file = folder_of(rank) + "/" + flight_file_name(rank);
      EXPECT_EQ(FlightReader(flight_file_at(file)).read().step, 7) << rank;
      EXPECT_FALSE(std::filesystem::exists(starting_place(file)));
    }
  }
}

// A peer that has died has its link where the rank that copies may not have it.
TEST_F(FlightPlaces, ACopyOfADeadRanksFileFindsItsPlace) {
  for (const int moved : {0, 1}) {
    local::run(2, [&](Communicator& ranks) {
      FlightFile file = start(ranks, memory_on());
      if (ranks.rank() == moved) file.phase(1, "forward");
      all_meet(ranks);
      if (ranks.rank() == 0) {
        const std::string of_peer = moved == 1 ? place(1) : starting_place(place(1));
        const FlightReader peer(flight_file_at(of_peer));
        FakeRanks peers;
        peers.show(1, peer);
        peers.end(1);
        keep_flight_files(file, &peers);
        EXPECT_FALSE(FlightLink::read(of_peer)) << moved;
        EXPECT_EQ(FlightReader(of_peer).rank(), 1);
        EXPECT_THAT(examine(folder()).ranks, SizeIs(2));
      }
      all_meet(ranks);
      file.end();
    });
  }
}

}  // namespace
}  // namespace zero::testing
