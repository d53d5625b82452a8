// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "launch/faults/flight_state.h"

namespace zero {

/// Whether the rank's last words say more than that others have ended.
bool says_why(const FlightState& state);

/// Whether they are a watchdog's, which has judged all ranks while they lived.
bool has_judged(const FlightState& state);

/// Whether they are an error, other than that the rank has waited for others for too long.
bool is_own_error(const FlightState& state);

/// The error of its own that a rank had no time to tell (kFailedItself); empty: none.
std::string_view own_error(std::string_view last_words);
/// The last words without it.
std::string_view without_own_error(std::string_view last_words);
/// "rank 2 had failed itself: no room"; empty if it had not.
std::string own_error_text(int rank, std::string_view last_words);

/// Whether the message of an error is that of a collective, which may follow from the fault of
/// another rank. Any other is of the rank's own work.
bool is_of_collective(std::string_view message);

/// The last words of the ranks, each once, in lines. Leaves out errors of a rank's own, which a
/// diagnosis tells with where the rank was, and of ranks that have only waited or followed all but
/// what the first says, if anybody says more.
std::string last_words_text(const std::vector<FlightState>& states);

}  // namespace zero
