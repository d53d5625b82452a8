// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#include "launch/flight/stragglers.h"

#include <algorithm>
#include <functional>

#include "base/nanoseconds.h"

namespace zero {

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
    Arrivals& arrivals = arrivals_[{known[record.group], call.number}];
    if (arrivals.come == 0) arrivals = {.ranks = ranks, .first = start};
    arrivals.starts += to_seconds(start - arrivals.first);
    if (++arrivals.come > 1 && start < arrivals.last) continue;
    arrivals.last = start;
    arrivals.last_rank = ring.rank;
  }
}

Stragglers StragglerFinder::find() const {
  std::map<int, Straggler> found;
  Stragglers result;
  for (const auto& [key, arrivals] : arrivals_) {
    if (arrivals.come != arrivals.ranks) continue;
    ++result.collectives;
    const double all =
        to_seconds(arrivals.last - arrivals.first) * static_cast<double>(arrivals.come);
    const double waited = std::max(0.0, all - arrivals.starts);
    result.seconds += waited;
    Straggler& straggler = found[arrivals.last_rank];
    straggler.rank = arrivals.last_rank;
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
