// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace zero {

// Each run has its flight files in a folder of its own, in that of flight files, so that what
// another run has left stays as it is:
// "runs/a/flight/20261201T174512.123456Z.0123456789abcdef/rank_00003.flight"

/// The name of one run's folder, in that of flight files:
/// "20261201T174512.123456Z.0123456789abcdef", by the time in nanoseconds since 1970 at which the
/// run was begun. Their order is that of time.
std::string run_folder_name(std::int64_t time, std::uint64_t run);
bool is_run_folder_name(std::string_view name);
/// The time in such a name; 0 if there is none.
std::int64_t time_of_run_folder(const std::string& name);
/// The folders of runs in a folder of flight files, the newest first; none if it cannot be read.
std::vector<std::string> run_folders(const std::string& folder);

/// Notes, in the folder of its run, that the flight file at `place` is of a run that has come to
/// its first step.
void note_first_step(const std::string& place);
/// Whether the run of the folder has come to its first step, as far as this host can know.
bool has_come_to_a_step(const std::string& run_folder);

/// Which links to the memory of other hosts go with what ended runs have left: a file there cannot
/// be removed from here, and its own host could not find it.
enum class LinksElsewhere : std::uint8_t { stay, go };
/// Removes what an ended run has left in its folder, and the folder once it is empty.
void remove_ended_run(const std::string& run_folder, LinksElsewhere links);
/// The same for all runs that were begun before the one whose file is at `place`.
void remove_runs_beside(const std::string& place, LinksElsewhere links);

/// Removes the flight files of a name that this process has open in the folders of runs in
/// `folder`, or begins to write, with the links to them; leaves anything else that is there.
void remove_own_flights(const std::string& folder, const std::string& name);

/// Removes the folder of a run if no flight files are in it, and then the one that it is in if that
/// is empty.
void remove_empty_run(const std::string& run_folder);

}  // namespace zero
