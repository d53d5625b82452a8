// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <utility>

#include "launch/watch/diagnosis.h"
#include "launch/watch/fault_finder.h"
#include "launch/watch/host_peers.h"
#include "launch/watch/job_ranks.h"

namespace zero {

/// What this rank can say of a fault: the diagnosis of all ranks that it sees, with how ranks have
/// died and on which hosts they are.
class FaultReporter {
 public:
  /// `peers` and `ranks` must outlive this object. `count_kills`: WatchdogOptions::memory_kills.
  FaultReporter(const HostPeers& peers, const JobRanks& ranks,
                std::function<std::optional<std::int64_t>()> count_kills)
      : peers_(peers), ranks_(ranks), count_kills_(std::move(count_kills)) {}

  // For the watchdog's thread.
  /// Counts the kills for lack of memory: a death is laid to one if there are more by then.
  void note_kills() { kills_before_ = count_kills_(); }
  /// The fault with the culprits that were found, and how those of a death have died.
  Diagnosis diagnosis_of(const Finding& finding) const;

  // Any thread.
  /// Watchdog::in_full().
  std::string in_full(const std::string& message) const;
  /// Watchdog::waits().
  std::string waits() const;

 private:
  /// `host`: for a rank whose number may be one of a group; empty: that of the job's rank.
  std::string with_host(std::string text, int rank, std::string host = "") const;

  const HostPeers& peers_;
  const JobRanks& ranks_;
  std::function<std::optional<std::int64_t>()> count_kills_;
  std::optional<std::int64_t> kills_before_{};  // some seconds ago
};

}  // namespace zero
