// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#include "launch/watch/last_words.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <charconv>
#include <cstdint>
#include <limits>
#include <set>
#include <string_view>
#include <system_error>
#include <utility>
#include <vector>

#include "base/message_text.h"
#include "collectives/long_wait.h"
#include "collectives/operation.h"

namespace zero {
namespace {

bool begins(const FlightState& state, std::string_view words) {
  return state.last_words.starts_with(words);
}

// The first line of a watchdog's last words: "found death: ranks 1, 3-4; waited 1070 ms".
constexpr std::string_view kFound = "found ";
constexpr std::string_view kFoundRanks = ": ";
constexpr std::string_view kFoundWaited = "; waited ";
/// Culprits beyond these are in the lines alone, for which the room of last words is.
constexpr std::size_t kMostCulprits = 256;
constexpr std::int64_t kMostRank = std::numeric_limits<int>::max();

/// That line at the begin of last words; nothing was found: it is not there.
struct FoundLine {
  explicit FoundLine(std::string_view last_words) {
    std::string_view line = last_words.substr(0, last_words.find('\n'));
    if (!line.starts_with(kFound) || line.size() == last_words.size()) return;
    const std::size_t whole = line.size() + 1;
    line.remove_prefix(kFound.size());
    const std::size_t name = line.find(kFoundRanks);
    const std::size_t end = line.find(kFoundWaited);
    for (const What each : {What::death, What::hang, What::mismatch}) {
      if (name < end && end != std::string_view::npos && line.substr(0, name) == name_of(each))
        what = each;
    }
    if (what == What::nothing) return;
    bytes = whole;
    ranks = line.substr(name, end - name);
    waited = line.substr(end + kFoundWaited.size());
  }

  using What = Diagnosis::What;
  What what = What::nothing;
  std::size_t bytes = 0;  // with its end
  std::string_view ranks{}, waited{};
};

/// Reads the number that the text begins with, and removes it; nothing if it begins with none.
std::optional<std::int64_t> take_number(std::string_view& text) {
  std::int64_t number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (error != std::errc() || number < 0) return std::nullopt;
  text.remove_prefix(static_cast<std::size_t>(end - text.data()));
  return number;
}

/// The ranks of ranks_text(), at most kMostCulprits.
std::vector<int> ranks_in(std::string_view text) {
  std::vector<int> ranks;
  for (;;) {
    const std::size_t digit = text.find_first_of("0123456789");
    if (digit == std::string_view::npos) return ranks;
    text.remove_prefix(digit);
    const auto first = take_number(text);
    auto last = first;
    if (text.starts_with('-')) {
      text.remove_prefix(1);
      last = take_number(text);
    }
    if (!first || !last || *last > kMostRank) return ranks;
    for (std::int64_t rank = *first; rank <= *last && ranks.size() < kMostCulprits; ++rank) {
      ranks.push_back(static_cast<int>(rank));
    }
  }
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
  if (!last_words.empty()) return std::string(for_people(last_words));
  if (kills_before && kills_now && *kills_now > *kills_before) {
    return "ended by the kernel's out-of-memory killer";
  }
  return "ended without a word: by SIGKILL, a crash or the like";
}

bool says_why(const FlightState& state) {
  return !without_own_error(state.last_words).empty() && !begins(state, kEndedBecause);
}

std::string words_of(const Diagnosis& judgement) {
  std::vector<int> culprits = judgement.culprits;
  culprits.resize(std::min(culprits.size(), kMostCulprits));
  return fmt::format("{}{}{}{}{}{:.0f} ms\n{}\n", kFound, name_of(judgement.what), kFoundRanks,
                     ranks_text(culprits), kFoundWaited, 1e3 * judgement.waited_seconds,
                     fmt::join(judgement.lines, "\n"));
}

std::optional<Diagnosis> judgement_in(std::string_view last_words) {
  const FoundLine found(last_words);
  if (found.what == Diagnosis::What::nothing) return std::nullopt;
  std::string_view waited = found.waited;
  Diagnosis judgement{.what = found.what,
                      .culprits = ranks_in(found.ranks),
                      .waited_seconds = static_cast<double>(take_number(waited).value_or(0)) / 1e3};
  const std::string_view lines = for_people(last_words);
  for (std::size_t begin = 0; begin < lines.size();) {
    const std::size_t end = std::min(lines.find('\n', begin), lines.size());
    judgement.lines.emplace_back(lines.substr(begin, end - begin));
    begin = end + 1;
  }
  return judgement;
}

std::string_view for_people(std::string_view last_words) {
  if (last_words.starts_with(kToldPeople)) return last_words.substr(kToldPeople.size());
  return last_words.substr(FoundLine(last_words).bytes);
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
    std::string_view words = for_people(without_own_error(state.last_words));
    if (words.empty() || !said.insert(std::string(words)).second) continue;
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
