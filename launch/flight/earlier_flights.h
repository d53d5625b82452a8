// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace zero {

/// The folder, in that of a run's flight files, of those that an earlier run has left.
inline constexpr std::string_view kEarlierFlights = "previous";

/// What an earlier run has left in a folder of flight files while a new run starts there: its
/// files, or links to files, wait in "previous" until the new run comes to its first step; a start
/// that fails puts them back. A folder has one such set: the files of a start that ended before its
/// first step, and tell of no fault, make way for those that wait already. Renames alone, so that a
/// kill between two of them loses nothing: the next run's set_aside() goes on. Never throws: what
/// cannot be moved stays.
class EarlierFlights {
 public:
  /// `own`: a rank's, which puts back the file of its number; `all`: the first rank's of a host.
  enum class Share : std::uint8_t { own, all };

  /// Of the run whose rank has its flight file, or the link to it, at `place`.
  EarlierFlights(const std::string& place, Share share);

  /// Moves what an earlier run has left out of the way, before any rank of this run has a file in
  /// the folder. Moves and removes nothing if a file there is that of a run that goes on.
  void set_aside() const noexcept;
  /// Moves those that wait back to their places, as far as nothing is there.
  void put_back() const noexcept;
  /// The new run has begun: removes those that wait, if the share is `all`. A call to the disk.
  void remove() const noexcept;

 private:
  std::string folder_;
  std::string name_;  // of this rank's file
  Share share_;
};

}  // namespace zero
