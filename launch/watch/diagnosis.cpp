// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#include "launch/watch/diagnosis.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <functional>
#include <iterator>
#include <map>
#include <set>
#include <sstream>
#include <tuple>
#include <utility>

#include "base/message_text.h"
#include "base/nanoseconds.h"
#include "launch/watch/wait_graph.h"

namespace zero {
namespace {

using What = Diagnosis::What;

enum class Tense : std::uint8_t { present, past };

constexpr std::size_t kMostLines = 12;  // of other waits

double seconds(std::int64_t from, std::int64_t to) { return std::max(0.0, to_seconds(to - from)); }

std::string step_text(std::int64_t step) {
  return step < 0 ? "before the first step" : fmt::format("of step {}", step);
}

std::string call_text(const FlightState::Collective& collective) {
  std::string text = fmt::format("{} #{}", collective.name, collective.number);
  if (!collective.group.empty()) text += fmt::format(" of group {}", collective.group);
  return text;
}

/// The newest collective that the rank has ended; null: none.
const FlightState::Collective* newest_ended(const FlightState& state) {
  const auto newest = std::ranges::max_element(state.last, {}, &FlightState::Collective::ended);
  return newest == state.last.end() ? nullptr : &*newest;
}

/// "in "backward" of step 812"
std::string phase_text(const FlightState& state) {
  return fmt::format("in {} {}", state.phase.empty() ? "no phase" : '"' + state.phase + '"',
                     step_text(state.step));
}

/// "in "backward" of step 812; its last compute was backward h.7; it has been in all_gather(h.6)
/// #1840 of group shard for 5.2 s; its last collective, barrier(x) #3, ended 6.0 s ago; its process
/// is stopped". In the past, as of `then`: "it had been in ...", "had ended 6.0 s before".
std::string whereabouts_text(const FlightState& state, Tense tense, std::int64_t then) {
  const bool past = tense == Tense::past;
  std::string text = phase_text(state);
  if (!state.compute.empty()) text += fmt::format("; its last compute was {}", state.compute);
  for (const FlightState::Collective& open : state.open) {
    if (open.started == 0) continue;
    text += fmt::format("; it {} been in {} for {}", past ? "had" : "has", call_text(open),
                        wait_text(seconds(open.started, then)));
  }
  if (const auto* const last = newest_ended(state)) {
    text += fmt::format("; its last collective, {}, {}ended {} {}", call_text(*last),
                        past ? "had " : "", wait_text(seconds(last->ended, then)),
                        past ? "before" : "ago");
  }
  if (!state.process_state.empty()) text += "; its process " + state.process_state;
  return text;
}

/// "last seen 0.4 s ago in ..." of a rank that a heartbeat told of, in whose past the rest is.
std::string last_seen_text(const FlightState& state, std::int64_t now) {
  return fmt::format("last seen {} ago {}", wait_text(seconds(state.seen, now)),
                     whereabouts_text(state, Tense::past, state.seen));
}

std::string place_text(const FlightState& state, std::int64_t now) {
  if (state.over) return "has ended in good order";
  if (state.seen != 0) return "was " + last_seen_text(state, now);
  return "is " + whereabouts_text(state, Tense::present, now);
}

/// "is in "backward" of step 812; its process is stopped"
std::string short_place_text(const FlightState& state, std::int64_t now) {
  if (state.over) return place_text(state, now);
  return fmt::format(
      "{} {}{}",
      state.seen == 0 ? "is"
                      : fmt::format("was last seen {} ago", wait_text(seconds(state.seen, now))),
      phase_text(state), state.process_state.empty() ? "" : "; its process " + state.process_state);
}

/// Adds where ranks to blame are, and their stacks.
void add_whereabouts(std::vector<std::string>& lines, const WaitGraph& waits,
                     const std::vector<int>& ranks, std::int64_t now) {
  for (const int rank : ranks) {
    const FlightState* const state = waits.state_of(rank);
    if (state == nullptr) {
      lines.push_back(fmt::format(
          "rank {} is not seen from here: it is on another host, or its flight file cannot be read",
          rank));
      continue;
    }
    lines.push_back(fmt::format("rank {} {}", rank, place_text(*state, now)));
    if (state->stack.empty()) continue;
    lines.push_back(fmt::format("rank {}'s stack:", rank));
    std::istringstream stack(state->stack);
    for (std::string line; std::getline(stack, line);) lines.push_back("  " + line);
  }
}

/// Adds lines, the longest wait first: "ranks 0-2, 4-7 have waited for 3.2 s in
/// reduce_scatter(h.7) #1841 of group shard, for rank 3".
void add_waits(std::vector<std::string>& lines, const std::vector<Wait>& all, std::int64_t now) {
  for (std::size_t i = 0; i < std::min(all.size(), kMostLines); ++i) {
    const Wait& wait = all[i];
    lines.push_back(fmt::format("{} waited for {} in {}, for {}", ranks_have(wait.ranks),
                                wait_text(seconds(wait.since, now)), call_text(wait.collective),
                                ranks_text(wait.absent)));
  }
  if (all.size() > kMostLines) {
    lines.push_back(fmt::format("and {} more waits", all.size() - kMostLines));
  }
}

double longest(const std::vector<Wait>& all, std::int64_t now) {
  return all.empty() ? 0 : seconds(all.front().since, now);
}

/// The first sentence about ranks that others wait for. Removes from `all` the wait that the
/// sentence tells whole.
std::string blame_text(const std::vector<int>& culprits, const WaitGraph& waits,
                       std::vector<Wait>& all, std::int64_t now) {
  const auto found = std::ranges::find_if(all, [&](const Wait& wait) {
    return std::ranges::find_first_of(wait.absent, culprits) != wait.absent.end();
  });
  if (found == all.end())
    return ranks_text(culprits) + (culprits.size() == 1 ? " holds" : " hold") + " up others";
  const Wait direct = *found;
  std::vector<int> absent = direct.absent;
  std::erase_if(absent,
                [&](int rank) { return std::ranges::find(culprits, rank) == culprits.end(); });
  if (absent.size() == direct.absent.size()) all.erase(found);
  const FlightState* const waiting = waits.state_of(direct.ranks.front());
  return fmt::format("{} not entered {} {}, in which {} waited for {}", ranks_have(absent),
                     call_text(direct.collective), step_text(waiting->step),
                     ranks_have(direct.ranks), wait_text(seconds(direct.since, now)));
}

Diagnosis of_deaths(std::span<const RankDeath> deaths, const WaitGraph& waits, std::int64_t now) {
  Diagnosis found{.what = What::death, .waited_seconds = longest(waits.all(), now)};
  for (const RankDeath& death : deaths) {
    found.culprits.push_back(death.rank);
    std::string line = fmt::format("rank {} {}", death.rank, death.how);
    if (const FlightState* const state = waits.state_of(death.rank)) {
      line += "; " + (state->seen == 0
                          ? "until then it was " + whereabouts_text(*state, Tense::past, now)
                          : last_seen_text(*state, now));
    }
    found.lines.push_back(std::move(line));
  }
  std::ranges::sort(found.culprits);
  add_waits(found.lines, waits.all(), now);
  return found;
}

/// The ranks by the collective that they call for one number of one group.
using Calls = std::map<std::string, std::vector<int>>;

/// The call in words that equal calls share.
std::string comparable(const FlightState::Collective& collective) {
  // Ranks of an all_to_all may send sums of different sizes.
  if (collective.bytes == 0 || collective.name.starts_with("all_to_all")) return collective.name;
  return fmt::format("{} of {} bytes", collective.name, collective.bytes);
}

/// The ranks whose call differs from that of the most; all ranks if no call has the most.
std::vector<int> minority(const Calls& calls) {
  std::size_t most = 0;
  for (const auto& [text, ranks] : calls) most = std::max(most, ranks.size());
  const auto leaders =
      std::ranges::count_if(calls, [&](const auto& call) { return call.second.size() == most; });
  std::vector<int> others;
  for (const auto& [text, ranks] : calls) {
    if (ranks.size() < most || leaders > 1) others.insert(others.end(), ranks.begin(), ranks.end());
  }
  std::ranges::sort(others);
  return others;
}

/// The first number of a group by which ranks call different collectives.
Diagnosis of_mismatch(std::span<const FlightState> states, const WaitGraph& waits,
                      std::int64_t now) {
  std::map<std::tuple<std::string, RankList, std::uint64_t>, Calls> all;
  for (const FlightState& state : states) {
    std::set<std::tuple<std::string, RankList, std::uint64_t>> counted;
    for (const auto* const some : {&state.open, &state.last}) {
      for (const FlightState::Collective& each : *some) {
        if (each.ranks.empty()) continue;
        auto key = std::tuple(each.group, each.ranks, each.number);
        if (!counted.insert(key).second) continue;
        all[std::move(key)][comparable(each)].push_back(state.rank);
      }
    }
  }
  for (const auto& [key, calls] : all) {
    if (calls.size() < 2) continue;
    const auto& [group, ranks, number] = key;
    Diagnosis found{.what = What::mismatch,
                    .culprits = minority(calls),
                    .waited_seconds = longest(waits.all(), now)};
    std::vector<std::string> parts;
    for (const auto& [text, callers] : calls) {
      parts.push_back(fmt::format("{} {} in {}", ranks_text(callers),
                                  callers.size() == 1 ? "is" : "are", text));
    }
    found.lines.push_back(fmt::format("collective #{} of group {} differs: {}", number, group,
                                      fmt::join(parts, ", ")));
    add_whereabouts(found.lines, waits, found.culprits, now);
    add_waits(found.lines, waits.all(), now);
    return found;
  }
  return {};
}

/// The rank of these that has published nothing for the longest; none if all are over.
std::vector<int> quietest(std::span<const FlightState> states, const std::vector<int>& among) {
  const FlightState* found = nullptr;
  for (const FlightState& state : states) {
    if (state.over || std::ranges::find(among, state.rank) == among.end()) continue;
    if (found == nullptr || state.changed < found->changed) found = &state;
  }
  return found == nullptr ? std::vector<int>{} : std::vector<int>{found->rank};
}

std::vector<int> unusual(std::span<const FlightState> states) {
  std::vector<int> ranks;
  for (const FlightState& state : states) {
    if (!state.process_state.empty() && !state.over) ranks.push_back(state.rank);
  }
  return ranks;
}

/// All ranks of a group have entered one collective, which does not end.
Diagnosis of_unended(std::span<const FlightState> states, const WaitGraph& waits, const Wait& wait,
                     std::int64_t now) {
  Diagnosis found{
      .what = What::hang, .culprits = unusual(states), .waited_seconds = seconds(wait.since, now)};
  const FlightState& one = *waits.state_of(wait.ranks.front());
  std::vector<int> others = wait.ranks;
  std::erase_if(others, [&](int rank) {
    return std::ranges::find(found.culprits, rank) != found.culprits.end();
  });
  const std::string where = fmt::format("{} {}", call_text(wait.collective), step_text(one.step));
  found.lines.push_back(
      found.culprits.empty()
          ? fmt::format("{} are in {} and have been for {}: all have come, and it does not "
                        "end; look at the ways between them (network, shared memory)",
                        ranks_text(wait.ranks), where, wait_text(found.waited_seconds))
          : fmt::format("{} {} in {}, {} waited in it for {}", ranks_text(found.culprits),
                        found.culprits.size() == 1 ? "is" : "are", where, ranks_have(others),
                        wait_text(found.waited_seconds)));
  add_whereabouts(found.lines, waits, found.culprits, now);
  return found;
}

Diagnosis of_waits(std::span<const FlightState> states, const WaitGraph& waits, std::int64_t now,
                   std::span<const int> unknown) {
  Diagnosis found{.what = What::hang, .waited_seconds = longest(waits.all(), now)};
  std::vector<Wait> others = waits.all();
  found.culprits = unusual(states);  // whatever else is true, a stopped process holds up others
  const std::vector<int> blamed = waits.blamed();
  if (blamed.empty()) {
    const auto stuck = std::ranges::find_if(waits.unended(), [&](const Wait& wait) {
      return wait.is_shared() && std::ranges::includes(wait.ranks, found.culprits);
    });
    if (stuck != waits.unended().end()) {
      found = of_unended(states, waits, *stuck, now);
      add_waits(found.lines, others, now);
      return found;
    }
  }
  if (found.culprits.empty()) {
    std::ranges::set_difference(blamed, unknown, std::back_inserter(found.culprits));
  }
  if (!found.culprits.empty()) {
    found.lines.push_back(blame_text(found.culprits, waits, others, now));
  } else if (blamed.empty()) {
    const std::vector<int> waiting = waits.waiting();
    found.culprits = quietest(states, waiting);
    found.lines.push_back(fmt::format(
        "{} wait for each other in a circle: they do not call the collectives of their groups in "
        "one order; {} has done nothing for the longest",
        ranks_text(waiting), ranks_text(found.culprits)));
  }
  add_whereabouts(found.lines, waits, found.culprits, now);
  add_waits(found.lines, others, now);
  return found;
}

/// No rank waits for another.
Diagnosis of_compute(std::span<const FlightState> states, const WaitGraph& waits,
                     std::int64_t now) {
  std::vector<int> all;
  for (const FlightState& state : states) all.push_back(state.rank);
  std::vector<int> culprits = unusual(states);
  if (culprits.empty()) culprits = quietest(states, all);
  if (culprits.empty()) return {};
  const std::int64_t changed = waits.state_of(culprits.front())->changed;
  Diagnosis found{
      .what = What::hang, .culprits = culprits, .waited_seconds = seconds(changed, now)};
  found.lines.push_back(fmt::format("no rank waits for another; {} done nothing for {}",
                                    ranks_have(culprits), wait_text(found.waited_seconds)));
  add_whereabouts(found.lines, waits, culprits, now);
  return found;
}

}  // namespace

std::string_view name_of(Diagnosis::What what) {
  constexpr std::array<std::string_view, 5> kNames{"nothing", "death", "error", "hang", "mismatch"};
  static_assert(std::size_t(Diagnosis::What::mismatch) + 1 == kNames.size());
  return kNames.at(static_cast<std::size_t>(what));
}

std::string ranks_have(const std::vector<int>& ranks) {
  return ranks_text(ranks) + (ranks.size() == 1 ? " has" : " have");
}

Diagnosis diagnose(std::span<const FlightState> ranks, std::span<const RankDeath> deaths,
                   std::int64_t now, std::span<const int> unknown) {
  std::vector<int> dead;
  for (const RankDeath& death : deaths) dead.push_back(death.rank);
  const WaitGraph waits(ranks, dead);
  if (!deaths.empty()) return of_deaths(deaths, waits, now);
  if (Diagnosis found = of_mismatch(ranks, waits, now); found.what != What::nothing) return found;
  if (!waits.all().empty()) return of_waits(ranks, waits, now, unknown);
  if (!waits.unended().empty()) return of_unended(ranks, waits, waits.unended().front(), now);
  return of_compute(ranks, waits, now);
}

LongestWait longest_wait(std::span<const FlightState> ranks, std::int64_t now) {
  const WaitGraph waits(ranks);
  std::vector<int> culprits = waits.blamed();
  if (culprits.empty()) return {};
  // One that is not seen may have come.
  const auto is_seen = [&](int rank) { return waits.state_of(rank) != nullptr; };
  const bool any_seen = std::ranges::any_of(culprits, is_seen);
  if (any_seen) std::erase_if(culprits, std::not_fn(is_seen));
  const bool one = culprits.size() == 1;
  std::string place;
  if (!any_seen) {
    place = fmt::format(", which {} not seen from here", one ? "is" : "are");
  } else if (one) {
    place = ", which " + short_place_text(*waits.state_of(culprits.front()), now);
  }
  const double time = longest(waits.all(), now);
  return {.seconds = time,
          .culprit = culprits.front(),
          .line = fmt::format("{} waited for {} for {}{}", ranks_have(waits.waiting()),
                              wait_text(time), ranks_text(culprits), place)};
}

}  // namespace zero
