// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <vector>

#include "collectives/local/group.h"

namespace zero::local {

/// What a rank does in a meeting, on its own memory and that of its peers: at once, where the work
/// of a stream itself touches memory, or as commands in a device's queue.
class PeerOps {
 public:
  explicit PeerOps(Group::Meeting& meeting) : meeting_(meeting) {}
  virtual ~PeerOps() = default;
  PeerOps(const PeerOps&) = delete;
  PeerOps& operator=(const PeerOps&) = delete;

  int rank() const { return meeting_.rank(); }
  int size() const { return meeting_.size(); }
  const Call& of(int rank) const { return meeting_.of(rank); }
  const Call& own() const { return of(rank()); }

  /// to = from, unless they are the same memory. As many elements each, of one dtype.
  virtual void copy(View from, View to) = 0;
  virtual void tree_reduce(std::vector<View> inputs, const ReduceEpilogue& epilogue) = 0;
  virtual void combine(std::vector<View> inputs, ReduceOp op, View to) = 0;
  /// What ranks did before it, all find done behind it.
  virtual void barrier() = 0;

 protected:
  Group::Meeting& meeting_;
};

using Body = std::function<void(PeerOps&)>;

/// Submits to `stream` what each rank does in the meeting of `call`. On a stream that enqueues, the
/// ranks' host threads meet here, and their queues wait for each other's events.
void submit_meeting(Stream& stream, std::shared_ptr<Group> group, int rank, Call call, Body body);

}  // namespace zero::local
