// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <mpi.h>

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "collectives/call.h"

namespace zero::mpi {

/// How hosts find out that their ranks do not make the same call: the leader of each host, its
/// first rank, tells that of the next one, round in a ring. A host that strays is found by itself
/// and by the next. The messages travel beside the call's values; on ranks that lead nothing,
/// nothing happens.
class Agreement {
 public:
  /// Among `leaders`, ranks of `group`.
  Agreement(MPI_Comm group, int rank, const std::vector<int>& leaders);
  Agreement(const Agreement&) = delete;
  Agreement& operator=(const Agreement&) = delete;
  ~Agreement();

  void start(const Call& call);
  /// Returns once the previous leader's call has come and is this one's; at once when that was
  /// already so. Calls `watch()` now and then meanwhile, which may throw. Throws zero::Error that
  /// names both calls where they differ.
  void finish(const std::function<void()>& watch);

 private:
  std::optional<std::string> received() const;

  MPI_Comm group_;
  int rank_;
  int previous_ = -1;  // none: this rank leads nothing
  int next_ = -1;
  std::string mine_;  // read by MPI until the request is complete
  MPI_Request request_ = MPI_REQUEST_NULL;
  bool started_ = false;
};

}  // namespace zero::mpi
