// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#include "launch/faults/stragglers.h"

#include <algorithm>
#include <functional>
#include <map>
#include <string>
#include <utility>

namespace zero {
namespace {

/// A collective as far as the rings have been read.
struct Meeting {
  std::size_t ranks = 0;  // of its group
  std::size_t come = 0;
  std::int64_t last = 0;  // start of the last rank so far
  int last_rank = 0;
  double starts = 0;  // sum, in seconds since the first start
  std::int64_t first = 0;
};

double seconds_between(std::int64_t from, std::int64_t to) {
  return (static_cast<double>(to) - static_cast<double>(from)) * 1e-9;
}

}  // namespace

Stragglers find_stragglers(std::span<const FlightRing> rings) {
  std::map<std::pair<std::string, std::vector<int>>, std::uint64_t> groups;
  std::map<std::pair<std::uint64_t, std::uint64_t>, Meeting> meetings;  // by group and number
  for (const FlightRing& ring : rings) {
    std::vector<std::uint64_t> known;
    for (const FlightGroup& group : ring.groups) {
      known.push_back(groups.try_emplace({group.name, group.ranks}, groups.size()).first->second);
    }
    for (const FlightRecord& record : ring.records) {
      const FlightState::Collective& call = record.collective;
      if (call.started == 0 || record.group >= known.size()) continue;
      const std::size_t ranks = ring.groups[record.group].ranks.size();
      if (ranks < 2) continue;
      Meeting& meeting = meetings[{known[record.group], call.number}];
      const std::int64_t start = call.started + ring.shift;
      if (meeting.come == 0) meeting = {.ranks = ranks, .last = start, .first = start};
      ++meeting.come;
      meeting.starts += seconds_between(meeting.first, start);
      if (meeting.come > 1 && start < meeting.last) continue;
      meeting.last = start;
      meeting.last_rank = ring.rank;
    }
  }
  std::map<int, Straggler> found;
  Stragglers result;
  for (const auto& [key, meeting] : meetings) {
    if (meeting.come != meeting.ranks) continue;
    ++result.collectives;
    const double waited = std::max(
        0.0, seconds_between(meeting.first, meeting.last) * static_cast<double>(meeting.come) -
                 meeting.starts);
    result.seconds += waited;
    Straggler& straggler = found[meeting.last_rank];
    straggler.rank = meeting.last_rank;
    straggler.seconds += waited;
    ++straggler.last;
  }
  for (auto& [rank, straggler] : found) {
    if (result.seconds > 0) straggler.share = straggler.seconds / result.seconds;
    result.ranks.push_back(straggler);
  }
  std::ranges::stable_sort(result.ranks, std::greater<>(), &Straggler::seconds);
  return result;
}

}  // namespace zero
