// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#include "launch/faults/stragglers.h"

#include <algorithm>
#include <functional>

namespace zero {
namespace {

double seconds_between(std::int64_t from, std::int64_t to) {
  return (static_cast<double>(to) - static_cast<double>(from)) * 1e-9;
}

}  // namespace

void StragglerFinder::add(const FlightRing& ring) {
  std::vector<std::uint64_t> known;
  for (const FlightGroup& group : ring.groups) {
    known.push_back(groups_.try_emplace({group.name, group.ranks}, groups_.size()).first->second);
  }
  for (const FlightRecord& record : ring.records) {
    const FlightState::Collective& call = record.collective;
    if (call.started == 0 || record.group >= known.size()) continue;
    const std::size_t ranks = ring.groups[record.group].ranks.size();
    if (ranks < 2) continue;
    const std::int64_t start = call.started + ring.shift;
    Meeting& meeting = meetings_[{known[record.group], call.number}];
    if (meeting.come == 0) meeting = {.ranks = ranks, .first = start};
    meeting.starts += seconds_between(meeting.first, start);
    if (++meeting.come > 1 && start < meeting.last) continue;
    meeting.last = start;
    meeting.last_rank = ring.rank;
  }
}

Stragglers StragglerFinder::find() const {
  std::map<int, Straggler> found;
  Stragglers result;
  for (const auto& [key, meeting] : meetings_) {
    if (meeting.come != meeting.ranks) continue;
    ++result.collectives;
    const double all =
        seconds_between(meeting.first, meeting.last) * static_cast<double>(meeting.come);
    const double waited = std::max(0.0, all - meeting.starts);
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
