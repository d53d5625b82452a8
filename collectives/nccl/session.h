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

/// A communicator of NCCL and its parts, which live and fail together. A thread watches them and
/// the other ranks: where NCCL reports an error, a rank says that it failed, one is lost or does
/// not come in time, all of them are aborted, so that no rank waits in vain, and every later call
/// throws.
class Session {
 public:
  using Clock = std::chrono::steady_clock;

  /// `store` must outlive this.
  Session(Store& store, int rank, std::shared_ptr<const CallContext> context);
  /// Ends the watch; what was added has left before.
  ~Session();
  Session(const Session&) = delete;
  Session& operator=(const Session&) = delete;

  /// From now on the calls on `comm`, that of `group`, are watched for ranks that do not come.
  void attend(ncclComm_t comm, Attendance::Group group);

  /// Runs `calls`, which make or use `*comm`, once no other thread uses the library, and returns
  /// when they are through: their work is on its streams. From then on `*comm` is watched. A call
  /// that fails is the end of the session. Throws zero::Error, which names `who`; so does a session
  /// that has failed.
  void run(const std::string& who, ncclComm_t* comm, const std::function<void()>& calls,
           Clock::time_point deadline = Clock::time_point::max());
  /// The same of calls that every rank of `comm`'s group makes: one more for the attendance.
  void run_collective(const std::string& who, ncclComm_t comm, const std::function<void()>& calls);
  /// Ends `comm`: in good order, or at once where the session has failed.
  void leave(ncclComm_t comm) noexcept;

  /// Runs call(comm), which does not block, unless `comm` has been aborted: to take back what it
  /// knows of memory.
  void use(ncclComm_t comm, const std::function<void(ncclComm_t)>& call) noexcept;

  /// Ends the session for `reason`, on all ranks. The first reason is kept.
  void fail(const std::string& reason) noexcept;
  /// Throws zero::Error where the session has failed. Never waits for calls of the library: host
  /// code in a stream's order may ask, and a call may wait for the stream.
  void check(const std::string& who) const;

 private:
  void watch();
  std::vector<Attendance::Group> groups() const;
  /// What other ranks say of the end of the session; nothing where all is well.
  std::optional<std::string> trouble_elsewhere();
  /// The same of this rank's communicators.
  std::optional<std::string> trouble_here() const;
  void settle(const std::string& who, ncclComm_t comm, Clock::time_point deadline);
  void abort_all(const std::string& reason) noexcept;
  void check_locked(const std::string& who) const;
  void count_locked(const std::string& who, ncclComm_t comm);
  /// What NCCL says of `comm` now.
  ncclResult_t state_of(ncclComm_t comm) const;

  Store& store_;
  int rank_;
  mutable std::mutex mutex_;  // of all calls of the library
  std::condition_variable ends_;
  bool ended_ = false;
  mutable std::mutex telling_;  // besides, of changes of failure_
  std::optional<std::string> failure_;
  std::vector<ncclComm_t> comms_;  // parts behind what they are parts of
  std::vector<std::pair<ncclComm_t, Attendance::Group>> groups_;
  std::string last_ = "nothing yet";
  std::shared_ptr<const CallContext> context_;
  std::thread watcher_;
};

}  // namespace zero::nccl
