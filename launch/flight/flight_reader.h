// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "launch/flight/flight_layout.h"
#include "launch/flight/flight_state.h"
#include "launch/flight/mapped_file.h"

namespace zero {

/// A record of a flight file's ring.
struct FlightRecord {
  flight::Kind kind = flight::Kind::none;
  std::int64_t step = -1;
  std::int64_t time = 0;                 ///< of a collective: when it was submitted
  std::string name{};                    ///< "backward h.7"; "update"; "reduce_scatter(h.7)"
  FlightState::Collective collective{};  ///< if it is one, or a host call; without its ranks
  std::uint32_t group = 0;               ///< of a collective: its place in FlightReader::groups()
};

/// A group of ranks that a flight file knows.
struct FlightGroup {
  std::string name{};        ///< empty: nobody has named it
  std::vector<int> ranks{};  ///< of the world; empty: unknown
};

/// Reads a rank's flight file, also while the rank writes it, and once it was killed. Used by one
/// thread.
class FlightReader {
 public:
  /// Maps the file; `path` may be /proc/PID/fd/N. Throws zero::Error naming it if it cannot be
  /// read, is no flight file, is cut short, or has another version.
  explicit FlightReader(const std::string& path);

  /// The rank as it is now.
  FlightState read() const;
  /// When the rank last published anything. Much cheaper than read().
  std::int64_t changed() const;
  /// The whole ring, the oldest first; torn records are left out.
  std::vector<FlightRecord> records() const;
  std::vector<FlightGroup> groups() const;

  const std::string& path() const { return path_; }
  /// The whole file as it is now. Any thread.
  std::string whole() const { return map_.copy(); }
  int rank() const { return fixed_.rank; }
  /// The time of day less CLOCK_MONOTONIC when the file was created; nanoseconds.
  std::int64_t wall_clock_offset() const;

 private:
  const flight::Header& head() const { return *map_.at<const flight::Header>(0); }
  const flight::Group& group_at(std::uint32_t group) const;
  std::uint32_t group_count() const;
  /// `number`: stored plus 1.
  std::string name_of(std::uint64_t number) const;
  std::string text(std::uint64_t offset, std::uint32_t room, std::uint32_t length) const;
  /// Copies the record; false if it is gone or torn.
  bool copy(std::uint64_t ticket, flight::Record& record) const;
  FlightState::Collective collective_of(const flight::Record& record) const;  // without ranks
  std::vector<int> ranks_of(const flight::Group& group) const;
  /// Empty if one is no rank of the world, or follows itself.
  std::vector<int> ranks_at(std::uint64_t offset, std::uint64_t count) const;
  LastWords last_words() const;
  void find_collectives(FlightState& state) const;

  std::string path_;
  MappedFile map_;
  flight::Sizes sizes_{};
  flight::Offsets offsets_;
  FlightState fixed_{};  // what does not change
};

}  // namespace zero
