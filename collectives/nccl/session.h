// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <nccl.h>

#include <condition_variable>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "collectives/nccl/attendance.h"
#include "collectives/store.h"

namespace zero::nccl {

/// An NCCL communicator and all splits of it, which live and fail together. A thread, the watch,
/// observes them and the other ranks: if NCCL reports an error, or a rank reports failure, is lost
/// or does not come in time, the session aborts all its communicators, so that no rank waits in
/// vain, and every later call throws.
class Session {
 public:
  using Clock = std::chrono::steady_clock;

  /// `store` must outlive this.
  Session(Store& store, int rank, std::shared_ptr<const CallContext> context);
  /// Ends the watch; all communicators must have left.
  ~Session();
  Session(const Session&) = delete;
  Session& operator=(const Session&) = delete;

  /// Starts to watch calls on `comm`, the communicator of `group`, for ranks that do not come.
  void attend(ncclComm_t comm, Attendance::GroupProgress group);

  /// Runs `calls`, which make or use `*comm`, once no other thread uses the library, and returns
  /// once their work is enqueued on its streams. The watch then observes `*comm`. A call that fails
  /// ends the session. Throws zero::Error naming `who` if a call fails or the session has failed.
  void run(const std::string& who, ncclComm_t* comm, const std::function<void()>& calls,
           Clock::time_point deadline = Clock::time_point::max());
  /// The same for calls that every rank of `comm`'s group makes; counts one call for Attendance.
  void run_collective(const std::string& who, ncclComm_t comm, const std::function<void()>& calls);
  /// Ends `comm`: in good order, or at once if the session has failed.
  void leave(ncclComm_t comm) noexcept;

  /// Runs call(comm), which must not block, unless `comm` has been aborted; for deregistering
  /// memory.
  void use(ncclComm_t comm, const std::function<void(ncclComm_t)>& call) noexcept;

  /// Ends the session on all ranks for `reason`. The first reason is kept.
  void fail(const std::string& reason) noexcept;
  /// Throws zero::Error if the session has failed. Never waits for calls of the library: host code
  /// on a stream may call this while a call of the library waits for that stream.
  void check(const std::string& who) const;

 private:
  void watch();
  std::vector<Attendance::GroupProgress> groups() const;
  /// The failure that other ranks report; empty if none.
  std::optional<std::string> trouble_elsewhere();
  /// `reason`, NCCL's, which names no rank, and before it the failure that other ranks report, if
  /// they do so in time.
  std::string explained(const std::string& reason);
  /// The failure of this rank's communicators; empty if none.
  std::optional<std::string> trouble_here() const;
  void await_connected(const std::string& who, ncclComm_t comm, Clock::time_point deadline);
  void abort_all(const std::string& reason) noexcept;
  void check_locked(const std::string& who) const;
  void count_locked(const std::string& who, ncclComm_t comm);
  /// The state of `comm` by NCCL.
  ncclResult_t state_of(ncclComm_t comm) const;

  Store& store_;
  int rank_;
  mutable std::mutex mutex_;  // held for all calls of the library
  std::condition_variable ends_;
  bool ended_ = false;
  mutable std::mutex telling_;  // also held for changes of failure_
  std::optional<std::string> failure_;
  std::vector<ncclComm_t> comms_;  // a split stands behind its parent
  std::vector<std::pair<ncclComm_t, Attendance::GroupProgress>> groups_;
  std::string last_ = "nothing yet";
  std::shared_ptr<const CallContext> context_;
  std::thread watcher_;
};

}  // namespace zero::nccl
