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

/// How ranks that share no memory find out that they do not make the same call: each of the
/// leaders, all ranks or the first rank of each host, tells the next one, round in a ring. A leader
/// that strays is found by itself and by the next. The messages travel beside the call's values; on
/// ranks that lead nothing, and on a leader alone, nothing happens.
class CallComparison {
 public:
  /// Among `leaders`, ranks of `group`.
  CallComparison(MPI_Comm group, int rank, const std::vector<int>& leaders);
  CallComparison(const CallComparison&) = delete;
  CallComparison& operator=(const CallComparison&) = delete;
  ~CallComparison();

  void start(const Call& call);
  /// Returns once the previous leader's call has come and is this one's; at once when that was
  /// already so. Calls `while_waiting` now and then meanwhile. Throws zero::Error that names both
  /// calls where they differ.
  void finish(const WhileWaiting& while_waiting);

 private:
  MPI_Comm group_;
  int rank_;
  int previous_ = -1;  // none: this rank leads nothing
  int next_ = -1;
  std::string mine_;  // read by MPI until the request is complete
  MPI_Request request_ = MPI_REQUEST_NULL;
  bool started_ = false;
};

}  // namespace zero::mpi
