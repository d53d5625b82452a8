// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace zero {

// The place of a flight file is where people look for it:
// "runs/a/flight/20261201T174512.123456Z.0123456789abcdef/rank_00003.flight", in a folder of its
// run's own, so that what another run has left stays as it is. The file itself is there, or a link
// to it: a small text file, since not every file system has symbolic links, that names a flight
// file in the memory of a host.

/// The option of zero_train that names the folder; other programs have their own.
inline constexpr std::string_view kFlightFolderOption = "run.flight_folder";

struct FlightLink {
  std::string path{};  ///< for processes of that host
  std::string host{};
  std::string boot{};  ///< boot_id() of that host: its memory ends with it

  /// The link at `place`; nothing if anything else, or nothing, is there.
  static std::optional<FlightLink> read(const std::string& place);
  /// Throws zero::Error naming `option` and `place` if something is there, or if the link cannot be
  /// written.
  void write(const std::string& place, std::string_view option = kFlightFolderOption) const;
  /// Whether the file is in this host's memory, as far as its boot tells.
  bool is_here() const;
};

/// "rank_00003.flight"
std::string flight_file_name(int rank);
/// Whether a file has such a name.
bool is_flight_file_name(std::string_view name);
/// The flight files, and links to flight files, in a folder, by name; none if it cannot be read.
std::vector<std::string> flight_files_in(const std::string& folder);
/// The rank in such a name; nothing if it has none.
std::optional<int> rank_of_flight_file(std::string_view name);

/// A flight file as it was at one moment, to be put in place of the link to it.
struct FlightCopy {
  std::string place{};
  std::string of{};  ///< where the link leads; removed if it is in the host's memory by name
  std::string bytes{};
};

/// The path of the flight file of a place: `place`, or where the link there leads. Throws
/// zero::Error naming both if that is another host's memory.
std::string flight_file_at(const std::string& place);

/// Whether a file is there without the first bytes of a flight file, which are written last: its
/// rank makes it, or was ended meanwhile, or its host has lost what was not on the disk. Such a
/// file is empty or has the size of a flight file.
bool is_half_made(const std::string& path);

/// What is known of the run whose flight file, or link to one, is at a place.
enum class FlightUse : std::uint8_t {
  none,     ///< no flight file is there, or one that is half made
  ended,    ///< as far as this host can know
  goes_on,  ///< or this user may not look
};
FlightUse use_of_flight(const std::string& place);

/// "/dev/shm/zero_flight.1000.0123456789abcdef.rank_00003": of this user, run and rank.
std::string path_in_memory(const std::string& memory, std::uint64_t run, int rank);
/// Whether path_in_memory() may have made the path, for this user.
bool is_path_in_memory(const std::string& path);

/// Throws zero::Error naming `option` if anything is at `place` that clear_flight_place() may not
/// remove.
void check_flight_place(const std::string& place, std::string_view option);

/// Removes what an ended run, or a host that lost its power, has left at `place`, with the file in
/// memory that it links to. Throws zero::Error naming `option` if anything else is there: a file of
/// the user's, or that of a run that goes on.
void clear_flight_place(const std::string& place, std::string_view option);

/// Removes the flight file of a run that has ended, with the link to it; leaves anything else that
/// is there. False if no file can be opened there.
bool remove_ended_flight(const std::string& place);

/// Removes the flight file that this process has open at `place`, or begins to write, with the link
/// to it; leaves anything else that is there. Returns whether it was there.
bool remove_own_flight(const std::string& place);

/// The path of a copy on its way to `place`.
inline std::string part_of(const std::string& place) { return place + ".part"; }

}  // namespace zero
