// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <fmt/format.h>

#include <chrono>
#include <cstddef>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "collectives/communicator.h"
#include "collectives/host_values.h"
#include "device/device.h"

namespace zero {

/// How one rank fared after its part of common work.
struct RankStatus {
  std::string failure;  ///< why it failed; empty: it did not
  std::string note;     ///< anything else
};

/// "[rank 3] " and the failure of the lowest rank that failed; empty if none did.
inline std::string first_failure(std::span<const RankStatus> statuses) {
  for (std::size_t rank = 0; rank < statuses.size(); ++rank) {
    if (!statuses[rank].failure.empty())
      return fmt::format("[rank {}] {}", rank, statuses[rank].failure);
  }
  return "";
}

/// Tells all ranks of a world how each fared. Counts no traffic of a step.
class RankStatuses {
 public:
  RankStatuses(const Communicator& world, Device& device)
      : world_(world.implementation()), device_(device) {}

  int rank() const { return world_.rank(); }
  int size() const { return world_.size(); }
  Communicator& world() { return world_; }
  const Communicator& world() const { return world_; }
  /// The statuses of all ranks, in rank order. Collective; blocks the host.
  std::vector<RankStatus> all_gather(const RankStatus& mine, std::string_view purpose) {
    std::string text = mine.failure;
    text += '\0';  // no message holds one
    text += mine.note;
    std::vector<RankStatus> statuses;
    for (const std::string& each : all_gather_texts(world_, device_, text, purpose)) {
      const std::size_t end = each.find('\0');
      statuses.push_back({each.substr(0, end), each.substr(end + 1)});
    }
    return statuses;
  }
  /// all_gather(), and of its result the failure of the lowest rank that failed, with that rank's
  /// number; empty if none did.
  std::string failure(const std::string& mine, std::string_view purpose) {
    return first_failure(all_gather({mine, {}}, purpose));
  }

 private:
  Communicator world_;
  Device& device_;
};

/// While one lives, this rank waits for the others without a timeout; warnings stay, and name
/// `phase`: "load", "save". For waits that a disk decides: the files of a checkpoint may take
/// longer than any timeout of ranks. A rank that hangs meanwhile is found by the watchdog, which
/// sees whether the rank uses its disk (FaultFinder).
class NoTimeout {
 public:
  NoTimeout(const Communicator& world, std::string phase)
      : world_(world.implementation()), before_(world_.wait_limits()) {
    WaitLimits limits = *before_;
    limits.timeout = std::chrono::milliseconds(0);
    limits.disk_phase = std::move(phase);
    world_.set_wait_limits(limits);
  }
  ~NoTimeout() {
    try {
      world_.set_wait_limits(*before_);
    } catch (...) {  // NOLINT(bugprone-empty-catch): no memory; the limits stay lifted
    }
  }
  NoTimeout(const NoTimeout&) = delete;
  NoTimeout& operator=(const NoTimeout&) = delete;

 private:
  Communicator world_;
  std::shared_ptr<const WaitLimits> before_;
};

}  // namespace zero
