// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "launch/faults/flight_file.h"
#include "launch/faults/flight_state.h"

namespace zero {

/// Reads a rank's flight file, also while the rank writes it and after it was killed. Used by one
/// thread; writes nothing.
class FlightReader {
 public:
  /// Opens and maps the file; `path` may be /proc/PID/fd/N. Throws zero::Error naming the file if
  /// it cannot be read, is no flight file, is cut short or of another version.
  explicit FlightReader(const std::string& path);

  /// The rank now.
  FlightState read() const;
  /// When the rank last published anything: cheaper than read().
  std::int64_t changed() const;
  /// Records written so far: grows whenever the rank does anything.
  std::uint64_t progress() const;

  /// A record of the ring that is not a collective's, or a collective.
  struct Record {
    flight::Kind kind = flight::Kind::none;
    std::int64_t step = -1;
    std::int64_t time = 0;                 ///< of a mark; a collective has its own times
    std::string name;                      ///< "backward h.7", "update", or the collective's
    FlightState::Collective collective{};  ///< of a collective or host call
    std::uint16_t stream = 0;
  };
  /// The whole ring, oldest first, without records that were torn.
  std::vector<Record> records() const;

  const std::string& path() const { return path_; }
  /// What to add to times of CLOCK_MONOTONIC to get those of the clock on the wall.
  std::int64_t wall_clock_offset() const;

 private:
  struct Parts;
  std::string name_of(std::uint64_t id) const;
  bool copy(std::uint64_t ticket, flight::Record& record) const;
  FlightState::Collective collective_of(const flight::Record& record) const;
  std::string text(std::size_t offset, std::uint32_t room, std::uint32_t length) const;
  void find_collectives(FlightState& state) const;

  std::string path_;
  MappedFile map_;
  flight::Header fixed_;  // as it was at the start
};

}  // namespace zero
