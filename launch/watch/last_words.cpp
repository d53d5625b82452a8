// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#include "launch/watch/last_words.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <set>
#include <sstream>
#include <utility>

#include "base/message_text.h"
#include "collectives/long_wait.h"
#include "collectives/operation.h"

namespace zero {

LastWords words_behind(const LastWords& words, std::string_view who) {
  using Kind = LastWords::Kind;
  if (words.kind == Kind::follower) return {.kind = Kind::follower, .text = words.text};
  return {.kind = Kind::follower,
          .text = fmt::format("ended because {} told of a fault and ended", who)};
}

std::string death_text(const std::string& last_words, std::optional<std::int64_t> kills_before,
                       std::optional<std::int64_t> kills_now) {
  if (!last_words.empty()) return last_words;
  if (kills_before && kills_now && *kills_now > *kills_before) {
    return "ended by the kernel's out-of-memory killer";
  }
  return "ended without a word: by SIGKILL, a crash or the like";
}

LastWords words_of(const Diagnosis& diagnosis) {
  return {.kind = LastWords::Kind::finding,
          .text = fmt::format("{}", fmt::join(diagnosis.lines, "\n")),
          .what = diagnosis.what,
          .culprits = diagnosis.culprits,
          .waited_seconds = diagnosis.waited_seconds};
}

std::optional<Diagnosis> diagnosis_in(const LastWords& last_words) {
  if (last_words.what == FoundFault::nothing) return std::nullopt;
  Diagnosis diagnosis{.what = last_words.what,
                      .culprits = last_words.culprits,
                      .waited_seconds = last_words.waited_seconds};
  std::istringstream text(last_words.text);
  for (std::string line; std::getline(text, line);) diagnosis.lines.push_back(line);
  return diagnosis;
}

bool is_own_error(const LastWords& last_words) {
  return last_words.kind == LastWords::Kind::error && !LongWait::is_overdue(last_words.text);
}

std::string own_error_text(const FlightState& state) {
  const std::string& error = state.last_words.own_error;
  return error.empty() ? "" : fmt::format("rank {} had failed itself: {}", state.rank, error);
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
  const bool told = std::ranges::any_of(
      states, [](const FlightState& state) { return state.last_words.says_why(); });
  bool waited = false;
  std::string text;
  std::set<std::string_view> said;
  for (const FlightState& state : states) {
    const LastWords& words = state.last_words;
    if (words.text.empty() || is_own_error(words) || (told && !words.says_why())) continue;
    // Each rank that waits says so for itself.
    if (words.kind == LastWords::Kind::error && std::exchange(waited, true)) continue;
    if (!said.insert(words.text).second) continue;
    text += fmt::format("last words of rank {}: {}\n", state.rank, words.text);
  }
  for (const FlightState& state : states) {
    const std::string error = own_error_text(state);
    if (error.empty() || text.find(error) != std::string::npos) continue;  // a watchdog told it
    text += error + "\n";
  }
  return text;
}

}  // namespace zero
