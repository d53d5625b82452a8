// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "launch/flight/flight_state.h"
#include "launch/watch/diagnosis.h"

namespace zero {

/// The last words of a rank that ends because `who` has, with these last words.
LastWords words_behind(const LastWords& words, std::string_view who);

/// How a rank has died, as far as others can know: by the text of its last words, or by the number
/// of processes that were killed for lack of memory some seconds before and now, where those are
/// known.
std::string death_text(const std::string& last_words, std::optional<std::int64_t> kills_before,
                       std::optional<std::int64_t> kills_now);

/// The last words of a watchdog, a finding.
LastWords words_of(const Diagnosis& diagnosis);
/// What it found; nothing: the last words are no watchdog's.
std::optional<Diagnosis> diagnosis_in(const LastWords& last_words);

/// Whether they are an error, other than that the rank has waited for others for too long.
bool is_own_error(const LastWords& last_words);

/// "rank 2 had failed itself: no room", of LastWords::own_error; empty if it had not.
std::string own_error_text(const FlightState& state);

/// Whether the message of an error is that of a collective, which may follow from the fault of
/// another rank. Any other is of the rank's own work.
bool is_of_collective(std::string_view message);

/// The last words of the ranks, each once, in lines. Leaves out errors of a rank's own, which a
/// diagnosis tells with where the rank was. If a rank says why the job ended, leaves out those of
/// ranks that only followed; of ranks that only waited, the first one's stand for all.
std::string last_words_text(const std::vector<FlightState>& states);

}  // namespace zero
