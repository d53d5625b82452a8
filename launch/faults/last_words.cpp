// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#include "launch/faults/last_words.h"

#include <fmt/format.h>

#include <algorithm>
#include <set>
#include <string_view>
#include <utility>
#include <vector>

#include "collectives/long_wait.h"
#include "collectives/operation.h"

namespace zero {
namespace {

bool begins(const FlightState& state, std::string_view words) {
  return state.last_words.starts_with(words);
}

}  // namespace

bool needs_no_teller(std::string_view last_words) {
  return !last_words.empty() && !last_words.starts_with(kEndedBySignal) &&
         !last_words.starts_with(kFailedItself);
}

bool is_of_signal(std::string_view last_words) {
  return last_words.find(kEndedBySignal) != std::string_view::npos;
}

std::string words_behind(std::string_view words, std::string_view who) {
  words = without_own_error(words);
  if (words.starts_with(kEndedBecause)) return std::string(words);  // they told nobody either
  return fmt::format("{}{} told of a fault and ended", kEndedBecause, who);
}

std::string death_text(std::string_view last_words, std::optional<std::int64_t> kills_before,
                       std::optional<std::int64_t> kills_now) {
  if (!last_words.empty()) return std::string(last_words);
  if (kills_before && kills_now && *kills_now > *kills_before) {
    return "ended by the kernel's out-of-memory killer";
  }
  return "ended without a word: by SIGKILL, a crash or the like";
}

bool says_why(const FlightState& state) {
  return !without_own_error(state.last_words).empty() && !begins(state, kEndedBecause);
}

bool has_judged(const FlightState& state) {
  return says_why(state) && !state.over && !begins(state, kEndedByError) &&
         !begins(state, kEndedBySignal) && !begins(state, kToldPeople);
}

bool is_own_error(const FlightState& state) {
  return begins(state, kEndedByError) && !LongWait::is_overdue(state.last_words);
}

std::string_view own_error(std::string_view last_words) {
  if (last_words.starts_with(kEndedByError)) return "";  // told; its message may have any words
  if (last_words.starts_with(kFailedItself)) return last_words.substr(kFailedItself.size());
  const std::string line = fmt::format("\n{}", kFailedItself);
  const std::size_t at = last_words.find(line);
  return at == std::string_view::npos ? "" : last_words.substr(at + line.size());
}

std::string_view without_own_error(std::string_view last_words) {
  const std::string_view error = own_error(last_words);
  if (error.empty()) return last_words;
  last_words.remove_suffix(kFailedItself.size() + error.size());
  return last_words.substr(0, last_words.find_last_not_of('\n') + 1);
}

std::string own_error_text(int rank, std::string_view last_words) {
  const std::string_view error = own_error(last_words);
  return error.empty() ? "" : fmt::format("rank {} had {}{}", rank, kFailedItself, error);
}

bool is_of_collective(std::string_view message) {
  if (message.find("the group has failed: ") != std::string_view::npos) return true;
  if (message.starts_with("[rank ")) message.remove_prefix(message.find("] ") + 2);
  if (message.starts_with("rank")) return true;  // calls that differ
  std::vector<std::string> calls{"split", "allocate_shared"};
  for (std::size_t i = 0; i < kOperations; ++i) {
    calls.push_back(fmt::format("{}(", name_of(static_cast<Operation>(i))));
  }
  return std::ranges::any_of(calls, [&](const auto& call) { return message.starts_with(call); });
}

std::string last_words_text(const std::vector<FlightState>& states) {
  const bool told = std::ranges::any_of(states, says_why);
  bool waited = false;
  std::string text;
  std::set<std::string> said;
  for (const FlightState& state : states) {
    if (state.last_words.empty() || is_own_error(state) || (told && !says_why(state))) continue;
    // Each rank that waits says so for itself.
    if (begins(state, kEndedByError) && std::exchange(waited, true)) continue;
    std::string_view words = without_own_error(state.last_words);
    if (words.empty() || !said.insert(std::string(words)).second) continue;
    if (words.starts_with(kToldPeople)) words.remove_prefix(kToldPeople.size());
    while (words.ends_with('\n')) words.remove_suffix(1);
    text += fmt::format("last words of rank {}: {}\n", state.rank, words);
  }
  for (const FlightState& state : states) {
    const std::string error = own_error_text(state.rank, state.last_words);
    if (error.empty() || text.find(error) != std::string::npos) continue;  // a watchdog told it
    text += error + "\n";
  }
  return text;
}

}  // namespace zero
