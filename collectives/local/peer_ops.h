// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <vector>

#include "collectives/local/group.h"

namespace zero::local {

/// The operations of a rank in a round, on its own memory and that of its peers: run at once if
/// the stream's work itself accesses memory, else enqueued on the device.
class PeerOps {
 public:
  explicit PeerOps(Group::Round& round) : round_(round) {}
  virtual ~PeerOps() = default;
  PeerOps(const PeerOps&) = delete;
  PeerOps& operator=(const PeerOps&) = delete;

  int rank() const { return round_.rank(); }
  int size() const { return round_.size(); }
  const Call& of(int rank) const { return round_.of(rank); }
  const Call& own() const { return of(rank()); }

  /// to = from, unless they are the same memory; equal counts and dtypes.
  virtual void copy(View from, View to) = 0;
  virtual void tree_reduce(std::vector<View> inputs, const ReduceEpilogue& epilogue) = 0;
  virtual void combine(std::vector<View> inputs, ReduceOp op, View to) = 0;
  /// Operations of all ranks before the barrier are complete for all ranks behind it.
  virtual void barrier() = 0;

 protected:
  Group::Round& round_;
};

using Body = std::function<void(PeerOps&)>;

/// Submits this rank's part in the round of `call` to `stream`. On a stream that enqueues, the
/// ranks' host threads meet in this function, and their queues wait for each other's events.
void submit_round(Stream& stream, std::shared_ptr<Group> group, int rank, Call call, Body body);

}  // namespace zero::local
