// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
// What earlier runs have left while a new run starts in their folder.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <linux/magic.h>

#include <csignal>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

#include "collectives/backends.h"
#include "collectives/stores.h"
#include "launch/flight/flight_file.h"
#include "launch/flight/flight_place.h"
#include "launch/flight/flight_reader.h"
#include "launch/watch/doctor.h"
#include "launch/watch/process_faults.h"
#include "launch/watch/run_faults.h"
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
using ::testing::SizeIs;

/// On a disk of the host, and on a server, whose files lie in the host's memory.
class FlightRuns : public FlightPlaces, public ::testing::WithParamInterface<std::int64_t> {
 protected:
  bool is_on_server() const { return GetParam() == NFS_SUPER_MAGIC; }
  /// A run of these ranks, which end with the file of each as `end` leaves it. Returns its number.
  std::uint64_t run(int ranks, const std::function<void(FlightFile&)>& end) const {
    std::uint64_t number = 0;
    local::run(ranks, [&](Communicator& world) {
      FlightFile file = create(world, memory_on(GetParam()));
      file.phase(-1, "start");
      all_meet(world);
      if (world.rank() == 0) number = number_in(folder());
      all_meet(world);
      end(file);
      all_meet(world);
    });
    return number;
  }
  /// Whose ranks end without a word in step 7.
  std::uint64_t crash(int ranks = 2) const {
    return run(ranks, [](FlightFile& file) { file.phase(7, "backward"); });
  }
  std::uint64_t kill_start(int ranks = 2) const {
    return run(ranks, [](FlightFile&) {});
  }
  void refuse_start(int ranks = 2) const {
    run(ranks, [](FlightFile& file) { file.end_and_remove(); });
  }
  static std::uint64_t number_in(const std::string& folder) {
    return examine(folder).ranks.at(0).run;
  }
  /// Expects the whole files of these runs, the newest first, and of no others.
  void expect_runs(const std::vector<std::pair<std::uint64_t, std::size_t>>& numbers) const {
    const std::vector<std::string> runs = run_folders(folder());
    ASSERT_THAT(runs, SizeIs(numbers.size()));
    std::size_t files = 0;
    for (std::size_t i = 0; i < runs.size(); ++i) {
      const auto& [number, ranks] = numbers[i];
      const Examination found = examine(runs[i]);
      EXPECT_THAT(found.ranks, AllOf(SizeIs(ranks), Each(Field(&FlightState::run, number)))) << i;
      EXPECT_THAT(found.missing, IsEmpty()) << i;
      files += ranks;
    }
    if (is_on_server()) {
      EXPECT_THAT(memory_.names(), SizeIs(files));
    }
  }
};

INSTANTIATE_TEST_SUITE_P(Folders, FlightRuns,
                         ::testing::Values(std::int64_t{EXT4_SUPER_MAGIC},
                                           std::int64_t{NFS_SUPER_MAGIC}));

TEST_P(FlightRuns, ThatStartAreJudgedAndEarlierOnesKeptUntilTheFirstStep) {
  const std::uint64_t crashed = crash(3);
  std::filesystem::permissions(folder(), std::filesystem::perms::all);
  const std::string earlier = run_folders(folder()).at(0);
  const std::uint64_t second = run(2, [&](FlightFile& file) {
    if (file.place() != place(0)) return;
    const std::string own = run_folders(folder()).at(0);
    EXPECT_EQ(std::filesystem::status(own).permissions(), std::filesystem::perms::all);
    EXPECT_THAT(text_of(examine(folder())), EndsWith("zero_doctor " + earlier + "\n"));
    EXPECT_THAT(examine(earlier).ranks, AllOf(SizeIs(3), Each(Field(&FlightState::step, 7))));
  });
  expect_runs({{second, 2}, {crashed, 3}});
  std::uint64_t before = 0;
  const std::uint64_t third = run(2, [&](FlightFile& file) {
    file.phase(-1, "load");
    file.phase(5, "between steps");  // of a run that goes on
    if (file.place() == place(0)) before = run_folders(folder()).size();
    file.phase(6, "forward");
  });
  EXPECT_EQ(before, 3U);
  expect_runs({{third, 2}});
  EXPECT_EQ(examine(folder()).ranks.at(1).step, 6);
}

// Refused, killed, or ended by an error, with as many ranks, fewer or more.
TEST_P(FlightRuns, ThatFailToStartReplaceNothingButOlderStarts) {
  using Run = std::pair<std::uint64_t, std::size_t>;
  const Run crashed{crash(), 2};
  std::vector<Run> before;
  for (const int ranks : {2, 1, 3}) {
    const auto files = static_cast<std::size_t>(ranks);
    const Run killed{kill_start(ranks), files};
    std::vector<Run> all{killed};
    all.insert(all.end(), before.begin(), before.end());
    all.push_back(crashed);
    expect_runs(all);
    refuse_start(ranks);
    expect_runs({killed, crashed});
    const Run failed{
        run(ranks,
            [](FlightFile& file) {
              file.phase(-1, "load");
              file.write_last_words({.kind = LastWords::Kind::error, .text = "another model"});
            }),
        files};
    expect_runs({failed, killed, crashed});
    refuse_start();
    expect_runs({failed, crashed});
    before = {failed};
  }
}

TEST_P(FlightRuns, ThatEndWellLeaveNothing) {
  crash(3);
  kill_start();
  run(2, [](FlightFile& file) {
    file.phase(-1, "end");  // there was nothing left to do
    file.end_and_remove();
  });
  EXPECT_FALSE(std::filesystem::exists(folder()));
  EXPECT_THAT(memory_.names(), IsEmpty());
}

// One rank has come to its first step.
TEST_P(FlightRuns, ThatCrashInTheFirstStepKeepAllTheirFiles) {
  crash(3);
  for (const int first : {0, 1}) {
    const std::uint64_t number = run(2, [&](FlightFile& file) {
      if (file.place() == place(first)) file.phase(1, "forward");
    });
    refuse_start();
    EXPECT_EQ(number_in(folder()), number);
    EXPECT_THAT(examine(folder()).ranks, SizeIs(2));
    EXPECT_THAT(examine(folder()).missing, IsEmpty());
  }
}

TEST_P(FlightRuns, AreRefusedBesideOneThatGoesOn) {
  const std::uint64_t crashed = crash();
  const auto refusal = [&] { return error_of([&] { create_alone(memory_on(GetParam())); }); };
  const std::uint64_t second = run(2, [&](FlightFile& file) {
    const std::string own = file.place();
    if (own != place(0)) return;
    EXPECT_THAT(refusal(), HasSubstr(own + " is the file of a run that goes on"));
    EXPECT_THAT(run_folders(folder()), SizeIs(2));
  });
  expect_runs({{second, 2}, {crashed, 2}});
  // Its other ranks have died: what they left tells why.
  local::run(2, [&](Communicator& ranks) {
    std::optional<FlightFile> file(create(ranks, memory_on(GetParam())));
    const std::string own = file->place();
    if (ranks.rank() == 0) file.reset();
    all_meet(ranks);
    if (ranks.rank() == 1) {
      EXPECT_THAT(refusal(), HasSubstr(own + " is the file of a run that goes on"));
      EXPECT_THAT(examine(folder()).ranks, SizeIs(2));
    }
    all_meet(ranks);
  });
}

// A link may be another's: what it leads to is none of this run's business.
TEST_P(FlightRuns, BehindALinkAreNotTouched) {
  crash(1);
  const std::string other = server_.path("other");
  std::filesystem::rename(folder(), other);
  std::filesystem::create_directory(folder());
  const std::string theirs = run_folders(other).at(0);
  std::filesystem::create_directory_symlink(theirs, folder() + "/" + run_folder_name(1, 1));
  run_well();
  EXPECT_THAT(flight_files_in(theirs), SizeIs(1));
}

TEST_P(FlightRuns, ThatASignalEndsInTheirStartLeaveTheEarlierOnes) {
  const std::uint64_t crashed = crash(3);
  ProcessFaults process("zero_train", 0);
  local::run(2, [&](Communicator& ranks) {
    const ProcessFaults::Starting entry(process, folder(), ranks.rank());
    const FlightFile file = create(ranks, memory_on(GetParam()));
    all_meet(ranks);
    if (ranks.rank() == 0) process.end_by(SIGINT, [] {});
    all_meet(ranks);
  });
  expect_runs({{crashed, 3}});
}

// Each of which has a folder of its own by that name, or the first rank's.
TEST_P(FlightRuns, OfSeveralHostsAreKeptAndRemovedOnEach) {
  const std::vector<std::string> hosts{"a", "b", "b"};
  for (const bool shared : {true, false}) {
    const auto folder_of = [&](int rank) { return folder() + (shared || rank == 0 ? "" : "_b"); };
    const auto run = [&](std::int64_t step, bool well) {
      InProcessStore store;
      std::vector<std::jthread> threads;
      for (int rank = 0; rank < 3; ++rank) {
        threads.emplace_back([&, rank, step, well] {
          const auto world = store_only::world({store, rank, 3}, hosts);
          FlightFile file =
              create_flight_file({folder_of(rank)}, *world, *cpu::open(), memory_on(GetParam()));
          all_meet(*world);
          file.phase(step, step < 0 ? "start" : "forward");
          all_meet(*world);
          if (well) file.end_and_remove();
        });
      }
    };
    run(7, false);
    run(-1, true);
    for (int rank = 0; rank < 3; ++rank) {
      const std::vector<std::string> runs = run_folders(folder_of(rank));
      ASSERT_THAT(runs, SizeIs(1));
      const std::string file = runs.front() + "/" + flight_file_name(rank);
      EXPECT_EQ(FlightReader(flight_file_at(file)).read().step, 7) << rank;
    }
    run(8, false);
    for (int rank = 0; rank < 3; ++rank) EXPECT_THAT(run_folders(folder_of(rank)), SizeIs(1));
    run(9, true);
    for (int rank = 0; rank < 3; ++rank) EXPECT_FALSE(std::filesystem::exists(folder_of(rank)));
    EXPECT_THAT(memory_.names(), IsEmpty());
  }
}

// Whatever has ended them, and however the folder is written.
TEST_P(FlightRuns, ThatWereCutShortAtAnyMomentAreRemoved) {
  for (const char* const slashes : {"", "/", "//"}) {
    const std::uint64_t crashed = crash();
    const std::string torn = earlier_run();
    write_bytes(torn + "/" + flight_file_name(0), "ZERO flight link\n{\"boot\":3");
    write_bytes(torn + "/" + flight_file_name(1), "ZERO fli");
    write_bytes(torn + "/" + flight_file_name(2), "");
    refuse_start();
    EXPECT_EQ(number_in(run_folders(folder()).front()), crashed);
    const auto alone = local::single();
    FlightFile file =
        create_flight_file({folder() + slashes}, *alone, *cpu::open(), memory_on(GetParam()));
    file.phase(1, "forward");
    EXPECT_THAT(run_folders(folder()), SizeIs(1));
    file.end_and_remove();
    EXPECT_FALSE(std::filesystem::exists(folder())) << slashes;
  }
}

// On a disk without room for the note of a step.
TEST_P(FlightRuns, ThatCameToAStepAreKnownByTheirFilesToo) {
  const std::uint64_t crashed = crash();
  std::filesystem::remove(run_folders(folder()).front() + "/stepped");
  kill_start();
  const std::uint64_t last = kill_start();
  EXPECT_EQ(number_in(folder()), last);
  EXPECT_EQ(number_in(run_folders(folder()).back()), crashed);
  EXPECT_EQ(examine(folder()).earlier, run_folders(folder()).back());
}

// Its message tells people what to do.
TEST_P(FlightRuns, ThatAllRanksRefuseBeforeTheirFirstStepReplaceNothing) {
  const std::uint64_t crashed = crash();
  const std::uint64_t killed = kill_start();
  for (int i = 0; i < 2; ++i) {
    local::run(2, [&](Communicator& ranks) {
      RunFaults faults(ranks, create(ranks, memory_on(GetParam())), std::nullopt);
      for (PhaseListener* const each : faults.listeners<PhaseListener>()) each->phase(-1, "load");
      all_meet(ranks);
      faults.failed_alike("another model");
    });
    expect_runs({{killed, 2}, {crashed, 2}});
  }
}

// A file there can be removed by nobody else, so its own host must find it.
TEST_P(FlightRuns, ThatLeftLinksToAnotherHostsMemoryKeepThemUntilAGoodEnd) {
  const std::string place = earlier_run() + "/" + flight_file_name(5);
  FlightLink{.path = "/dev/shm/zero_flight.0.1", .host = "nid7", .boot = "b"}.write(place);
  crash();
  EXPECT_TRUE(FlightLink::read(place).has_value());
  EXPECT_THAT(examine(folder()).ranks, SizeIs(2));
  run_well();
  EXPECT_FALSE(std::filesystem::exists(folder()));
}

}  // namespace
}  // namespace zero::testing
