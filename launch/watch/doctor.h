// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "launch/flight/stragglers.h"
#include "launch/watch/diagnosis.h"

namespace zero {

/// What the flight files of a folder tell.
struct Examination {
  std::string folder;                   ///< where the files are
  std::vector<FlightState> ranks{};     ///< by rank; times on one clock
  std::vector<int> not_begun{};         ///< ranks whose files are half made, ascending
  std::vector<int> missing{};           ///< other ranks of the run without a file that can be read
  std::string earlier{};                ///< folder of an earlier run's files; empty: none
  std::vector<std::string> problems{};  ///< files that cannot be read, with the reason
  std::optional<std::int64_t> newest_checkpoint{};  ///< its step, if a complete one is here
  std::int64_t written = 0;  ///< when one of `ranks` last wrote: nanoseconds since 1970
  bool goes_on = false;      ///< some process still writes its file
  Diagnosis diagnosis{};     ///< nothing: it ended well, by a signal, or goes on
  bool is_told = false;      ///< the diagnosis is among the last words
  Stragglers stragglers{};
  std::vector<FlightReader> files{};   ///< of `ranks`
  std::vector<std::int64_t> shifts{};  ///< of their clocks, as in FlightRing

  /// Whether all ranks with a file have ended in good order, and by no error. Not if none has
  /// begun, or there are no files.
  bool ended_well() const;
};

/// Reads the flight files of the newest run in `folder`, or in "flight" in it, or those that lie in
/// the folder itself, and judges them. A wait is a hang after 3 s and 5 mean steps, and no rank
/// without a file is blamed. If all files are half made there are no `ranks`, and no fault. Throws
/// zero::Error naming the folder or file if the folder is not there, if it has neither a flight
/// file that can be read nor, without any, a complete checkpoint, or if its files are of several
/// runs.
Examination examine(const std::string& folder);

/// All that the files hold, for write_flight_trace(): some MiB a rank.
std::vector<FlightRing> rings_of(const Examination& examination);

/// For people, several lines.
std::string text_of(const Examination& examination);
nlohmann::ordered_json json_of(const Examination& examination);

}  // namespace zero
