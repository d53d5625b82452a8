// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <mpi.h>

#include <optional>
#include <string>
#include <vector>

#include "collectives/call.h"
#include "collectives/mpi/transfers.h"

namespace zero::mpi {

/// Detects that ranks without shared memory do not make the same call. The leaders (all ranks, or
/// the first rank of each host) form a ring in which each sends its call to the next. If one
/// leader's call differs, that leader and the next find the difference. The messages travel beside
/// the call's values. No-op on ranks that are no leaders, and with a single leader.
class CallComparison {
 public:
  /// Among `leaders`, ranks of `group`; errors have `names` for the ranks of the group.
  CallComparison(MPI_Comm group, int rank, const std::vector<int>& leaders, std::vector<int> names);
  CallComparison(const CallComparison&) = delete;
  CallComparison& operator=(const CallComparison&) = delete;
  ~CallComparison();

  void start(const Call& call);
  /// Waits for the previous leader's call and compares it with this one's; returns at once if that
  /// is already done. Calls `while_waiting` repeatedly meanwhile. If the calls differ, throws
  /// zero::Error naming both.
  void finish(const WhileWaiting& while_waiting);

 private:
  MPI_Comm group_;
  int rank_;
  std::vector<int> names_;
  int previous_ = -1;  // -1: this rank is no leader
  int next_ = -1;
  std::string mine_;  // read by MPI until the request is complete
  MPI_Request request_ = MPI_REQUEST_NULL;
  bool started_ = false;
};

}  // namespace zero::mpi
