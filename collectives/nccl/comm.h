// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>

#include "collectives/communicator.h"
#include "collectives/nccl/session.h"

namespace zero::nccl {

/// The calls of one NCCL group, each checked. Views that are only moved travel as bytes; empty ones
/// do not travel.
class Calls {
 public:
  Calls(const std::string& who, ncclComm_t comm, cudaStream_t stream)
      : who_(who), comm_(comm), stream_(stream) {}

  void send(View view, int peer) const;
  void receive(View view, int peer) const;
  /// Copies `from` of rank `root` to `to` of every rank.
  void broadcast(View from, View to, int root) const;
  /// Gathers `mine` of each rank, in rank order, from the start of `all` on.
  void all_gather(View mine, View all) const;
  void all_reduce(View values, ReduceOp op) const;
  /// Sums in the views' dtype: reduce_scatter over equal parts of `all`, in rank order; reduce from
  /// `from` to `root`'s `to`.
  void reduce_scatter(View all, View mine) const;
  void reduce(View from, View to, int root) const;

 private:
  const std::string& who_;
  ncclComm_t comm_;
  cudaStream_t stream_;
};

/// Owns one NCCL communicator. Its calls come one after another; their work goes to CUDA streams.
class Comm {
 public:
  /// The data with which all ranks of a world meet.
  struct Rendezvous {
    ncclUniqueId id{};
    int rank = 0;
    int size = 1;
    Session::Clock::time_point deadline;
  };
  /// Collective. Throws zero::Error if the ranks do not meet before the deadline.
  static std::shared_ptr<Comm> join(std::shared_ptr<Session> session, const Rendezvous& rendezvous);
  /// The ranks that give the same color, ordered by (key, rank), with this one's resources; null
  /// for a negative color. Collective.
  std::shared_ptr<Comm> split(int color, int key);

  Comm(std::shared_ptr<Session> session, ncclComm_t handle)
      : session_(std::move(session)), handle_(handle) {}
  ~Comm() { session_->leave(handle_); }
  Comm(const Comm&) = delete;
  Comm& operator=(const Comm&) = delete;

  const std::shared_ptr<Session>& session() const { return session_; }
  /// Has the session watch for ranks of `group`, this one's, that do not come to calls.
  void attend(Attendance::GroupProgress group) { session_->attend(handle_, std::move(group)); }
  /// Runs calls(group) as one NCCL group on one stream, and returns once all work is enqueued.
  void group(const std::string& who, cudaStream_t stream,
             const std::function<void(const Calls&)>& calls);

  /// GPU memory from NCCL's allocator; null if NCCL gives none.
  static std::shared_ptr<void> allocate(std::int64_t bytes);
  /// The same, registered with `comm`.
  static std::shared_ptr<void> allocate_registered(const std::shared_ptr<Comm>& comm,
                                                   std::int64_t bytes);
  /// The same, in a symmetric window of all ranks if the loaded library has windows (2.27): each
  /// rank knows the others' memory, and calls use one offset on all ranks. Collective, with the
  /// same `bytes` on every rank.
  static std::shared_ptr<void> allocate_window(const std::shared_ptr<Comm>& comm,
                                               std::int64_t bytes);

 private:
  static std::shared_ptr<void> registered(const std::shared_ptr<Comm>& comm,
                                          std::shared_ptr<void> memory, std::int64_t bytes);

  std::shared_ptr<Session> session_;
  ncclComm_t handle_;
};

}  // namespace zero::nccl
