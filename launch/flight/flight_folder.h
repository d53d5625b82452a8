// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "files/file_system_type.h"
#include "launch/flight/flight_file.h"

namespace zero {

class Communicator;
class Device;
class VisibleRanks;
struct TrainConfig;

/// Where the flight files of a run's ranks lie: run.flight_folder; where that is not given,
/// "flight" in run.checkpoint.folder, or else run.log with ".flight". Empty: the files are in
/// memory alone, because run.flight_folder is "none", or the run has neither checkpoints nor a log
/// that is a file.
std::string flight_folder(const TrainConfig& config);

/// The folder of flight files in a folder of checkpoints.
inline constexpr std::string_view kFlightInCheckpoints = "flight";

/// A folder of flight files, and how its program asks for it.
struct FlightFolder {
  std::string path{};  ///< empty: the files are in memory alone
  std::string option{kFlightFolderOption};
  std::string without = ", or \"none\"";  ///< ends the advice to give another folder
};

/// Where flight files lie whose own folder may need a server.
struct FlightMemory {
  std::string folder = "/dev/shm";
  /// The type of a path's file system.
  std::function<std::int64_t(const std::string&)> type_of = files::type_of_path;
};

/// Creates this rank's flight file, in a folder of the run's own (run_folder_name()) in the given
/// one. What earlier runs have left there, which may tell of a fault, stays until this one comes to
/// its first step, whatever becomes of its start; of starts that came to no step, the last one's
/// alone. If a page of the folder's files may wait for a server (files::may_need_server()), the
/// file lies in `memory`, or has no name where that has no room for it, and its place has a link;
/// the first rank of a host removes files there that ended a week ago or earlier. Ranks agree on
/// the number of the run, which their files name. Collective. Throws AgreedError naming the option.
FlightFile create_flight_file(const FlightFolder& folder, Communicator& ranks, Device& device,
                              const FlightMemory& memory = {});

/// What people are to know of ranks' files that should have a name in memory and have none; empty:
/// nothing, or this is not the first rank. Collective.
std::string flight_warning(const FlightFile& own, Communicator& ranks, Device& device);

/// The end of a process waits for its copies for so long.
inline constexpr std::chrono::milliseconds kForCopies{1000};

/// Puts the copies in their places, on a thread of its own, as the server of a network's file
/// system may not answer: after `patience` that thread goes on alone. A file that another rank has
/// copied, or a later run has replaced, stays. Returns whether all copies were made or not needed.
bool keep_copies(std::vector<FlightCopy> copies, std::chrono::milliseconds patience) noexcept;

/// keep_copies() of this rank's own flight file and of those of ranks of this host that died, for
/// kForCopies at most. `peers` may be null. For a process that does not end well; any thread.
void keep_flight_files(const FlightFile& own, const VisibleRanks* peers) noexcept;

}  // namespace zero
