// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#include "collectives/mpi/places.h"

#include <fmt/format.h>

#include <sstream>

#include "base/host_name.h"

namespace zero::mpi {
std::string Places::mine() {
  const host::Process self = host::this_process();
  return fmt::format("{} {} {} {}", self.id, self.start, host::process_namespace(), host_name());
}

Places::Places(const std::vector<std::string>& lines, const std::vector<int>& hosts, int rank) {
  for (std::size_t i = 0; i < lines.size(); ++i) {
    Place& place = places_.emplace_back();
    std::string space;
    std::istringstream words(lines[i]);
    words >> place.process.id >> place.process.start >> space >> place.host;
    place.visible =
        hosts[i] == hosts[static_cast<std::size_t>(rank)] && space == host::process_namespace();
  }
}

AbsentRank Places::absent(int rank) const {
  const Place& place = places_[static_cast<std::size_t>(rank)];
  return {rank, place.visible ? host::described(place.process)
                              : fmt::format("on host {}: unknown", place.host)};
}

}  // namespace zero::mpi
