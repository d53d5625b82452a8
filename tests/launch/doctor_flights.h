// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <memory>
#include <string_view>
#include <vector>

#include "collectives/operation.h"
#include "launch/flight/flight_file.h"
#include "launch/flight/flight_folder.h"
#include "tests/launch/flight_states.h"
#include "tests/scratch.h"

namespace zero::testing {

/// The flight files of a job of three ranks in a folder.
class Flights {
 public:
  explicit Flights(const Scratch& folder, int world = 3, std::uint64_t run = 5) {
    for (int rank = 0; rank < world; ++rank) {
      files_.push_back(std::make_unique<FlightFile>(
          FlightFile::create(folder.path(flight_file_name(rank)), rank, world, run)));
      ranks_.push_back(rank);
    }
    for (auto& file : files_) {
      file->add_group("shard", ranks_);
      file->phase(12, "backward");
      file->compute("h.1", Phase::backward);
    }
  }

  FlightFile& of(int rank) { return *files_[static_cast<std::size_t>(rank)]; }
  /// A collective that the rank enters `seconds` from now, and ends if `ends`.
  FlightFile::Ticket enter(int rank, std::string_view unit, double seconds) {
    const auto ticket =
        of(rank).submit({.operation = static_cast<std::uint8_t>(Operation::reduce_scatter),
                         .group = 0,
                         .name = unit,
                         .bytes = 64});
    of(rank).started(ticket, began_ + clock_at(seconds));
    return ticket;
  }
  void leave(int rank, FlightFile::Ticket ticket, double seconds) {
    of(rank).ended(ticket, began_ + clock_at(seconds));
  }
  /// The processes are gone.
  void close() { files_.clear(); }
  void close(int rank) { files_[static_cast<std::size_t>(rank)].reset(); }

 private:
  std::vector<std::unique_ptr<FlightFile>> files_{};
  std::vector<int> ranks_{};
  std::int64_t began_ = FlightFile::now();
};

}  // namespace zero::testing
