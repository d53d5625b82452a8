// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

#include "launch/faults/flight_file.h"

namespace zero {

class Communicator;
class Device;
struct TrainConfig;

/// Where the ranks' flight files lie: run.flight_folder, or else "flight" in run.checkpoint.folder,
/// or else "flight" beside run.log. Empty: the files are in memory alone, because nothing of these
/// is given or run.flight_folder is null.
std::string flight_folder(const TrainConfig& config);

/// "rank_00003.flight"
std::string flight_file_name(int rank);

/// Makes the folder and creates this rank's file; a file of an older run is replaced, files of
/// ranks that this run does not have are removed. Collective: ranks agree on the number of the run
/// that their files name. Throws AgreedError naming run.flight_folder.
FlightFile create_flight_file(const TrainConfig& config, Communicator& ranks, Device& device);

}  // namespace zero
