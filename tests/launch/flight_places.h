// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <gtest/gtest.h>
#include <linux/magic.h>
#include <unistd.h>

#include <csignal>
#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "collectives/backends.h"
#include "launch/flight/flight_folder.h"
#include "launch/flight/flight_place.h"
#include "launch/flight/run_folders.h"
#include "tests/launch/rank_threads.h"
#include "tests/scratch.h"

namespace zero::testing {

/// A server's folder, and a folder that stands for the host's memory.
class FlightPlaces : public ::testing::Test {
 protected:
  FlightMemory memory_on(std::int64_t type = NFS_SUPER_MAGIC) const {
    return memory_in(memory_.path(), type);
  }
  /// Every other folder has that type.
  static FlightMemory memory_in(const std::string& folder, std::int64_t type = NFS_SUPER_MAGIC) {
    return {.folder = folder, .type_of = [folder, type](const auto& path) {
              return path == folder ? std::int64_t{TMPFS_MAGIC} : type;
            }};
  }
  std::string folder() const { return server_.path("flight"); }
  /// Of the newest run.
  std::string place(int rank) const {
    const std::vector<std::string> runs = run_folders(folder());
    return (runs.empty() ? folder() : runs.front()) + "/" + flight_file_name(rank);
  }
  /// A folder of an earlier run, made anew.
  std::string earlier_run() const {
    const std::string made = folder() + "/" + run_folder_name(1, 1);
    std::filesystem::create_directories(made);
    return made;
  }
  FlightFile create(Communicator& ranks, const FlightMemory& memory) const {
    return create_flight_file({folder()}, ranks, *cpu::open(), memory);
  }
  FlightFile create_alone(const FlightMemory& memory) const {
    const auto alone = local::single();
    return create(*alone, memory);
  }
  /// A run of one rank that comes to its first step and ends well.
  void run_well() const {
    FlightFile file = create_alone(memory_on());
    file.phase(1, "forward");
    file.end_and_remove();
  }
  /// As a job of two ranks whose launcher kills all of it.
  void run_and_kill() const {
    const auto run_to_end = [&] {
      local::run(2, [&](Communicator& ranks) {
        FlightFile file = create(ranks, memory_on());
        file.phase(7, "backward");
        all_meet(ranks);
        ::raise(SIGKILL);
      });
    };
    ASSERT_EXIT(run_to_end(), ::testing::KilledBySignal(SIGKILL), "");
  }

  const Scratch server_;
  const Scratch memory_;
};

}  // namespace zero::testing
