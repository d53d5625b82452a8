// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
// What an earlier run has left while a new run starts in its folder.
#include "launch/flight/earlier_flights.h"

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
class EarlierFlightsOn : public FlightPlaces, public ::testing::WithParamInterface<std::int64_t> {
 protected:
  std::string earlier() const { return folder() + "/" + std::string(kEarlierFlights); }
  /// A run of these ranks, which end with the file of each as `end` leaves it.
  void run(int ranks, const std::function<void(FlightFile&)>& end) const {
    local::run(ranks, [&](Communicator& world) {
      FlightFile file = create(world, memory_on(GetParam()));
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
  void fail_to_start(int ranks = 2) const {
    run(ranks, [](FlightFile& file) { file.end_and_remove(); });
  }
  static std::uint64_t number_in(const std::string& folder) {
    return examine(folder).ranks.at(0).run;
  }
  /// Expects the files of that run and no others.
  void expect_only(std::uint64_t number, std::size_t ranks = 2) const {
    const Examination found = examine(folder());
    EXPECT_EQ(found.folder, folder());
    EXPECT_THAT(found.ranks, AllOf(SizeIs(ranks), Each(Field(&FlightState::run, number))));
    EXPECT_THAT(found.missing, IsEmpty());
    EXPECT_FALSE(std::filesystem::exists(earlier()));
    if (GetParam() == NFS_SUPER_MAGIC) {
      EXPECT_THAT(memory_.names(), SizeIs(ranks));
    }
  }
};

INSTANTIATE_TEST_SUITE_P(Folders, EarlierFlightsOn,
                         ::testing::Values(std::int64_t{EXT4_SUPER_MAGIC},
                                           std::int64_t{NFS_SUPER_MAGIC}));

TEST_P(EarlierFlightsOn, AreReadWhileARunStartsAndComeBackIfTheStartFails) {
  const std::uint64_t number = crash();
  std::filesystem::permissions(folder(), std::filesystem::perms::all);
  run(2, [&](FlightFile& file) {
    if (file.place() == place(0)) {
      EXPECT_EQ(std::filesystem::status(earlier()).permissions(), std::filesystem::perms::all);
      EXPECT_NE(number_in(folder()), number) << "a hang of the start is found";
      EXPECT_EQ(number_in(earlier()), number);
      EXPECT_EQ(examine(earlier()).ranks.at(1).step, 7);
      EXPECT_THAT(text_of(examine(folder())), EndsWith("zero_doctor " + earlier() + "\n"));
    }
  });
  EXPECT_NE(number_in(folder()), number) << "that start was killed";
  fail_to_start();
  expect_only(number);
  EXPECT_EQ(examine(folder()).ranks.at(1).step, 7);
  EXPECT_THAT(text_of(examine(folder())), Not(HasSubstr("earlier")));
  fail_to_start(1);
  expect_only(number);
  fail_to_start(3);
  expect_only(number);
}

TEST_P(EarlierFlightsOn, GoAtTheFirstStepOrAGoodEnd) {
  crash(3);
  run(2, [&](FlightFile& file) {
    file.phase(-1, "load");
    if (file.place() == place(0)) {
      EXPECT_TRUE(std::filesystem::exists(earlier()));
    }
    file.phase(1, "forward");
  });
  const std::uint64_t number = number_in(folder());
  expect_only(number);
  run(2, [](FlightFile& file) {
    file.phase(-1, "end");  // there was nothing left to do
    file.end_and_remove();
  });
  EXPECT_FALSE(std::filesystem::exists(folder()));
  EXPECT_THAT(memory_.names(), IsEmpty());
}

// Whoever kills it, at whatever moment.
TEST_P(EarlierFlightsOn, OutlastStartsThatAreEndedFromOutside) {
  const std::uint64_t number = crash();
  run(2, [](FlightFile&) {});
  run(2, [](FlightFile& file) {
    file.write_last_words({.kind = LastWords::Kind::signal, .text = "ended by SIGTERM"});
  });
  EXPECT_EQ(number_in(earlier()), number);
  fail_to_start();
  expect_only(number);
  // Behind each move.
  std::filesystem::create_directory(earlier());
  for (const int rank : {0, 1}) {
    std::filesystem::rename(place(rank), earlier() + "/" + flight_file_name(rank));
    EXPECT_EQ(number_in(folder()), number);
    if (rank == 0) {
      run(2, [](FlightFile&) {});
      EXPECT_THAT(examine(earlier()).ranks, SizeIs(2));
      fail_to_start();
      expect_only(number);
      std::filesystem::create_directory(earlier());
      std::filesystem::rename(place(rank), earlier() + "/" + flight_file_name(rank));
    }
  }
  EXPECT_EQ(examine(folder()).folder, earlier());
  fail_to_start();
  expect_only(number);
}

TEST_P(EarlierFlightsOn, MakeWayForAStartThatTellsOfAFault) {
  const std::uint64_t older = crash(3);
  run(2, [&](FlightFile& file) {
    if (file.place() != place(0)) return;  // killed
    file.write_last_words({.kind = LastWords::Kind::finding, .text = "rank 1 ended"});
  });
  const std::uint64_t newer = number_in(folder());
  EXPECT_EQ(number_in(earlier()), older);
  fail_to_start();
  expect_only(newer);
}

TEST_P(EarlierFlightsOn, ComeBackIfTheStartIsRefusedItsFiles) {
  const std::uint64_t number = crash();
  write_bytes(place(2), "mine");
  EXPECT_THAT(error_of([&] { fail_to_start(3); }), HasSubstr("exists and is no flight file"));
  EXPECT_EQ(file_bytes(place(2)), "mine");
  std::filesystem::remove(place(2));
  expect_only(number);
}

TEST_P(EarlierFlightsOn, StayWithARunThatStartsIfAnotherIsRefused) {
  const std::uint64_t number = crash();
  run(2, [&](FlightFile& file) {
    if (file.place() != place(0)) return;
    EXPECT_THAT(error_of([&] { create_alone(memory_on(GetParam())); }),
                HasSubstr("is the file of a run that goes on"));
    EXPECT_THAT(examine(earlier()).ranks, SizeIs(2));
  });
  fail_to_start();
  expect_only(number);
}

TEST_P(EarlierFlightsOn, ComeBackIfASignalEndsTheStartOfItsFiles) {
  const std::uint64_t number = crash(3);
  ProcessFaults process("zero_train", 0);
  local::run(2, [&](Communicator& ranks) {
    const ProcessFaults::Starting starting(process, place(ranks.rank()));
    const FlightFile file = create(ranks, memory_on(GetParam()));
    all_meet(ranks);
    if (ranks.rank() == 0) process.end_by(SIGINT, [] {});
    all_meet(ranks);
  });
  expect_only(number, 3);
}

// Each of which has a folder of its own by that name, or the first rank's.
TEST_P(EarlierFlightsOn, AreSetAsideOnAllHosts) {
  const std::vector<std::string> hosts{"a", "b", "b"};
  for (const bool shared : {true, false}) {
    const auto folder_of = [&](int rank) { return folder() + (shared || rank == 0 ? "" : "_b"); };
    const auto start = [&](std::string_view end, std::int64_t step) {
      InProcessStore store;
      std::vector<std::jthread> threads;
      for (int rank = 0; rank < 3; ++rank) {
        threads.emplace_back([&, rank, end, step] {
          const auto world = store_only::world({store, rank, 3}, hosts);
          FlightFile file =
              create_flight_file({folder_of(rank)}, *world, *cpu::open(), memory_on(GetParam()));
          file.phase(step, "start");
          if (end == "well") file.end_and_remove();
        });
      }
    };
    start("killed", 7);
    start("well", -1);
    for (int rank = 0; rank < 3; ++rank) {
      const std::string file = folder_of(rank) + "/" + flight_file_name(rank);
      EXPECT_EQ(FlightReader(flight_file_at(file)).read().step, 7) << rank;
      EXPECT_FALSE(std::filesystem::exists(folder_of(rank) + "/" + std::string(kEarlierFlights)));
    }
  }
}

}  // namespace
}  // namespace zero::testing
