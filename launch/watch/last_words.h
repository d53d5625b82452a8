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

// What last words begin with, by how their rank ends.

/// Of a rank that a signal ends and that leaves it to others to tell people.
inline constexpr std::string_view kEndedBySignal = "ended by SIG";
/// Before those of a rank that has told people of that signal.
inline constexpr std::string_view kToldPeople = "told people: ";
/// Of a rank that ends by an error of its own, with the message behind.
inline constexpr std::string_view kEndedByError = "ended by an error: ";
/// Before the error of its own of a rank that another fault's end may outrun: nobody has told it.
/// Alone, or in a line behind the words with which that end had come.
inline constexpr std::string_view kFailedItself = "failed itself: ";
/// Of a rank that ends because others have, and tells nobody.
inline constexpr std::string_view kEndedBecause = "ended because ";

/// Whether nobody has to tell people of the end of a rank with these: it has told of it, or it
/// followed another's.
bool needs_no_teller(std::string_view last_words);

/// Whether these are of a rank that a signal ended, whoever tells of it.
bool is_of_signal(std::string_view last_words);

/// The last words of a rank that ends because `who` has, with these last words.
std::string words_behind(std::string_view words, std::string_view who);

/// How a rank has died, as far as others can know: by its last words, or by the number of processes
/// that were killed for lack of memory some seconds before and now, where those are known.
std::string death_text(std::string_view last_words, std::optional<std::int64_t> kills_before,
                       std::optional<std::int64_t> kills_now);

/// Whether the rank's last words say more than that others have ended.
bool says_why(const FlightState& state);

/// The last words of a watchdog, which has judged all ranks while they lived: what it found, for
/// programs, and the lines for people.
std::string words_of(const Diagnosis& judgement);
/// What it found; nothing: the last words are no watchdog's.
std::optional<Diagnosis> judgement_in(std::string_view last_words);

/// The last words as people read them: without what is for programs.
std::string_view for_people(std::string_view last_words);

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
/// diagnosis tells with where the rank was. If a rank says why the job ended, leaves out those of
/// ranks that only followed; of ranks that only waited, the first one's stand for all.
std::string last_words_text(const std::vector<FlightState>& states);

}  // namespace zero
