// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>

#include "collectives/communicator.h"
#include "launch/faults/flight_file.h"
#include "launch/faults/flight_reader.h"
#include "launch/faults/flight_recorder.h"
#include "tests/launch/flight_states.h"
#include "tests/launch/rank_threads.h"

namespace zero::testing {

/// A rank that is recorded.
struct Recorded {
  explicit Recorded(Communicator& world, const FlightFileOptions& options = {})
      : file(FlightFile::create("", world.rank(), world.size(), 0, options)),
        recorder(file),
        listening(world, recorder),
        reader(own_path(file)) {}

  FlightFile file;
  FlightRecorder recorder;
  Listening listening;
  FlightReader reader;
  std::unique_ptr<Device> device = cpu::open();  // its streams' work ends first
};

}  // namespace zero::testing
