// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <nccl.h>

#include <condition_variable>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "collectives/long_wait.h"
#include "collectives/store.h"

namespace zero::nccl {

/// Finds ranks that do not come to a group's last call. The host cannot observe the work of a call
/// on the GPUs, so every rank counts its calls, and a rank that has made none for a while publishes
/// its count in the store. A rank with a lower count there, or none, has not come. Used by one
/// thread, a rank's watch.
class Attendance {
 public:
  /// A rank's progress through the calls of a group.
  struct GroupProgress {
    std::string name{};  ///< equal on the group's ranks
    int rank = 0;
    std::vector<std::string> hosts{};  ///< of its ranks
    std::int64_t calls = 0;            ///< calls so far that all ranks of the group make
    std::string who{};                 ///< the last call: "[rank 3] all_gather(h.0)"
    std::int64_t step = CallContext::kNoStep;
  };

  /// `store` must outlive this.
  Attendance(Store& store, std::shared_ptr<const CallContext> context)
      : store_(store), context_(std::move(context)) {}

  /// Must be called repeatedly with all groups of the rank. Warns of ranks that do not come, and
  /// throws zero::Error at the timeout.
  void look(const std::vector<GroupProgress>& groups);
  /// Time until look() has something new; at most `most`.
  std::chrono::milliseconds until_due(std::chrono::milliseconds most) const;

 private:
  /// A group and the wait that follows its last call.
  struct Quiet {
    std::int64_t calls = 0;
    int looks = 0;
    std::optional<LongWait> wait{};  // set from the third look on
  };

  void look(const GroupProgress& group, Quiet& quiet);
  std::int64_t calls_of(const GroupProgress& group, std::size_t rank) const;
  std::vector<AbsentRank> absent(const GroupProgress& group) const;

  Store& store_;
  std::shared_ptr<const CallContext> context_;
  std::map<std::string, Quiet> quiet_;
};

/// An NCCL communicator and all splits of it, which live and fail together. A thread, the watch,
/// observes them and the other ranks: if NCCL reports an error, or a rank reports failure, is lost
/// or does not come in time, the session fails: it aborts all its communicators, so that no rank
/// waits in vain, and every later call throws.
///
/// NCCL cannot abort gathers by copy engines and kernels on symmetric memory, and its abort may
/// block: a thread may then wait for a stream for ever. A session that has failed and does not end
/// in time therefore ends the process, with its reason on standard error and status 1. The library
/// ends a process nowhere else unless it is told to.
class Session {
 public:
  using Clock = std::chrono::steady_clock;

  /// `store` must outlive this. `ending`: from a failure until this must have ended.
  Session(Store& store, int rank, std::shared_ptr<const CallContext> context,
          std::chrono::milliseconds ending);
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

  /// Ends the session on all ranks for `reason`, and returns once its communicators are aborted.
  /// The first reason is kept.
  void fail(const std::string& reason) noexcept;
  /// Throws zero::Error if the session has failed. Never waits for calls of the library: host code
  /// on a stream may call this while a call of the library waits for that stream.
  void check(const std::string& who) const;

 private:
  enum class Tell : bool { nobody, others };

  void watch();
  /// Never waits for a thread that is inside the library.
  void look(Attendance& attendance);
  /// Ends the process unless the session, which has failed, ends in time.
  void await_end();
  /// Once the session has failed: tells the others, and aborts its communicators.
  void abort_once_failed();
  /// The session has failed for `reason`, unless it had before.
  void begin_end(const std::string& reason, Tell tell) noexcept;
  /// Whether the session has failed; its communicators are aborted then. Unlocks while it waits.
  bool has_aborted(std::unique_lock<std::mutex>& lock);
  /// The failure that other ranks report; empty if none.
  std::optional<std::string> trouble_elsewhere();
  /// `reason`, NCCL's, which names no rank, and before it the failure that other ranks report, if
  /// they do so in time.
  std::string explained(const std::string& reason);
  /// The failure of this rank's communicators; empty if none, or if a thread is inside the library,
  /// which asks for itself.
  std::optional<std::string> trouble_here() const;
  void await_connected(const std::string& who, ncclComm_t comm, Clock::time_point deadline);
  /// check(), where telling_ is held.
  void refuse_failed(const std::string& who) const;
  void begin_call(const std::string& who);
  void count(const std::string& who, ncclComm_t comm);
  /// The state of `comm` by NCCL.
  ncclResult_t state_of(ncclComm_t comm) const;

  Store& store_;
  int rank_;
  std::chrono::milliseconds ending_;
  mutable std::mutex mutex_;       // held for all calls of the library
  std::vector<ncclComm_t> comms_;  // a split stands behind its parent
  std::condition_variable aborts_;
  bool aborted_ = false;

  mutable std::mutex telling_;  // for the following; may be locked while mutex_ is
  std::condition_variable changes_;
  std::vector<std::pair<ncclComm_t, Attendance::GroupProgress>> groups_;
  std::string last_ = "nothing yet";
  std::optional<std::string> failure_;
  Clock::time_point failed_at_{};
  Tell tell_ = Tell::nobody;
  bool ending_in_order_ = false;  // nothing is left to abort
  bool ended_ = false;

  std::shared_ptr<const CallContext> context_;
  std::thread aborter_;
  std::thread watcher_;
};

}  // namespace zero::nccl
