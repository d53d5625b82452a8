// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#include "launch/watch/wait_graph.h"

#include <algorithm>
#include <ranges>
#include <set>
#include <string>
#include <utility>

#include "collectives/long_wait.h"

namespace zero {
namespace {

/// A group as all its ranks name it.
using GroupName = std::pair<std::string, RankList>;

GroupName group_name(const FlightState::Collective& collective) {
  return {collective.group, collective.ranks};
}

/// The number of the newest collective of each group that the rank has entered.
std::map<GroupName, std::uint64_t> entered(const FlightState& state) {
  std::map<GroupName, std::uint64_t> numbers;
  const auto add = [&](const FlightState::Collective& each) {
    std::uint64_t& number = numbers[group_name(each)];
    number = std::max(number, each.number);
  };
  for (const FlightState::Collective& each : state.last) add(each);
  for (const FlightState::Collective& each : state.open) {
    if (each.started != 0) add(each);
  }
  return numbers;
}

}  // namespace

WaitGraph::WaitGraph(std::span<const FlightState> states, std::span<const int> dead) {
  std::map<int, std::map<GroupName, std::uint64_t>> numbers;
  for (const FlightState& state : states) {
    states_[state.rank] = &state;
    numbers[state.rank] = entered(state);
  }
  std::map<std::pair<GroupName, std::uint64_t>, Wait> found;
  for (const auto& [rank, state] : states_) {
    if (std::ranges::find(dead, rank) != dead.end()) continue;
    for (const FlightState::Collective& each : state->open) {
      if (each.started == 0 || each.ranks.empty()) continue;
      Wait& wait = found[{group_name(each), each.number}];
      if (wait.ranks.empty() || each.started < wait.since) wait.since = each.started;
      wait.collective = each;
      wait.ranks.push_back(rank);
    }
  }
  for (auto& [key, wait] : found) {
    const auto& [group, number] = key;
    for (const int member : group.second) {
      const auto& known = numbers[member];  // nothing, of a rank without a state
      const auto newest = known.find(group);
      if (newest == known.end() || newest->second < number) wait.absent.push_back(member);
    }
    std::ranges::sort(wait.absent);
    for (const int rank : wait.ranks) {
      if (wait.absent.empty()) continue;
      std::vector<int>& ranks = absent_[rank];
      ranks.insert(ranks.end(), wait.absent.begin(), wait.absent.end());
    }
    (wait.absent.empty() ? unended_ : waits_).push_back(std::move(wait));
  }
  std::ranges::stable_sort(waits_, {}, &Wait::since);
  std::ranges::stable_sort(unended_, {}, &Wait::since);
}

std::vector<int> WaitGraph::blamed() const {
  std::map<int, std::vector<int>> answers = absent_;
  for (const Wait& wait : unended_) {
    if (!wait.is_shared()) continue;
    for (const int rank : wait.ranks) answers.try_emplace(rank);  // waits for nobody in particular
  }
  std::set<int> found;
  for (const auto& [rank, absent] : absent_) {
    for (const int each : ranks_to_blame(absent, answers, rank)) found.insert(each);
  }
  return {found.begin(), found.end()};
}

std::vector<int> WaitGraph::waiting() const {
  const auto ranks = std::views::keys(absent_);
  return {ranks.begin(), ranks.end()};
}

const FlightState* WaitGraph::state_of(int rank) const {
  const auto found = states_.find(rank);
  return found == states_.end() ? nullptr : found->second;
}

}  // namespace zero
