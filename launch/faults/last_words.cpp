// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#include "launch/faults/last_words.h"

#include <fmt/format.h>

#include <algorithm>
#include <set>
#include <string_view>
#include <utility>

#include "collectives/long_wait.h"
#include "launch/faults/fault_finder.h"

namespace zero {
namespace {

bool begins(const FlightState& state, std::string_view words) {
  return state.last_words.starts_with(words);
}

}  // namespace

bool tells(const FlightState& state) {
  return !state.last_words.empty() && !begins(state, kEndedBecause);
}

bool has_judged(const FlightState& state) {
  return tells(state) && !state.over && !begins(state, kEndedByError) &&
         !begins(state, kEndedBySignal) && !begins(state, kToldPeople);
}

bool is_own_error(const FlightState& state) {
  return begins(state, kEndedByError) && !LongWait::is_overdue(state.last_words);
}

std::string last_words_text(const std::vector<FlightState>& states) {
  const bool told = std::ranges::any_of(states, tells);
  bool waited = false;
  std::string text;
  std::set<std::string> said;
  for (const FlightState& state : states) {
    if (state.last_words.empty() || is_own_error(state) || (told && !tells(state))) continue;
    // Each rank that waits says so for itself.
    if (begins(state, kEndedByError) && std::exchange(waited, true)) continue;
    if (!said.insert(state.last_words).second) continue;
    std::string_view words = state.last_words;
    if (words.starts_with(kToldPeople)) words.remove_prefix(kToldPeople.size());
    while (words.ends_with('\n')) words.remove_suffix(1);
    text += fmt::format("last words of rank {}: {}\n", state.rank, words);
  }
  return text;
}

}  // namespace zero
