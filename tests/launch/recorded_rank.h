// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>

#include "collectives/communicator.h"
#include "launch/flight/flight_file.h"
#include "launch/flight/flight_reader.h"
#include "launch/flight/flight_recorder.h"
#include "tests/launch/flight_states.h"
#include "tests/launch/rank_threads.h"

namespace zero::testing {

/// A flight file, its recorder and its reader.
struct RecordedFile {
  explicit RecordedFile(int rank = 0, int world = 2, const FlightFileOptions& options = {})
      : file(FlightFile::create("", rank, world, 0, options)) {}

  FlightFile file;
  FlightRecorder recorder{file};
  FlightReader reader{own_path(file)};
};

/// A rank that is recorded.
struct Recorded : RecordedFile {
  explicit Recorded(Communicator& world, const FlightFileOptions& options = {})
      : RecordedFile(world.rank(), world.size(), options), listening(world, recorder) {}

  Listening listening;
  std::unique_ptr<Device> device = cpu::open();  // its streams' work ends first
};

}  // namespace zero::testing
