// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <mpi.h>

#include <algorithm>
#include <chrono>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "collectives/call.h"
#include "collectives/communicator.h"
#include "collectives/host/transport.h"
#include "collectives/long_wait.h"
#include "collectives/mpi/comm.h"
#include "collectives/mpi/inquiries.h"
#include "collectives/mpi/options.h"
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

/// The message of the rank that failed, from that of a failure that was passed on.
std::string_view origin_of(std::string_view what);

/// Failures in a group: a rank that fails sends its message to all others, which poll for such
/// messages while they wait. Keeps the first failure that this rank learns of. One thread at a
/// time.
class Failures {
 public:
  /// `group` must outlive this.
  explicit Failures(MPI_Comm group) : group_(group) {}
  Failures(const Failures&) = delete;
  Failures& operator=(const Failures&) = delete;

  /// Sends `what` to all others, unless a failure is already known here. Never throws.
  void report(std::string_view what) noexcept;
  /// Receives messages of others; returns the failure that this rank knows of.
  const std::optional<std::string>& received();
  /// The same without receiving.
  const std::optional<std::string>& known() const { return reason_; }

 private:
  MPI_Comm group_;
  std::optional<std::string> reason_;
};

/// The MPI messages of a group of ranks: its private MPI communicator, the comparison of calls and
/// the reports of failures. The group may be a part of the job; errors number ranks as the job
/// does. Values travel as non-blocking point-to-point messages: between processes of one host each
/// is a single copy, and slices of any size and place need no packing. Blocks the calling thread (a
/// stream's) without holding its core. One thread at a time.
class Link {
 public:
  /// Values up to this many bytes go to every rank whole instead of in shares: fewer messages.
  static constexpr std::int64_t kWhole = std::int64_t{8} << 10;
  /// Most bytes of one message if ranks are on several hosts: below OpenMPI's eager limit for TCP,
  /// with room for its header. A longer message starts with a handshake, whose answer queues behind
  /// the receiver's own data on the same connection: two ranks that send to each other then take
  /// turns and use half the link.
  static constexpr std::int64_t kBetweenHosts = std::int64_t{63} << 10;

  using CallSignature = host::HostTransport::CallSignature;
  using Work = std::function<void()>;

  Link(Comm group, const Options& options, std::shared_ptr<const CallContext> context)
      : group_(std::move(group)),
        options_(options),
        context_(std::move(context)),
        failures_(group_.get()) {}
  Link(const Link&) = delete;
  Link& operator=(const Link&) = delete;
  ~Link();
  /// Before any call: the inquiries of the job that the group is, or is a part of.
  void join(std::shared_ptr<Inquiries> job);

  int rank() const { return group_.rank(); }
  int size() const { return group_.size(); }
  MPI_Comm handle() const { return group_.get(); }
  const Options& options() const { return options_; }
  Failures& failures() { return failures_; }
  const std::shared_ptr<Inquiries>& inquiries() const { return inquiries_; }
  /// The numbers in the job of all ranks of the group.
  const std::vector<int>& names() const { return names_; }
  /// The same of some ranks of the group.
  std::vector<int> names_of(const std::vector<int>& ranks) const;
  /// Cuts messages to at most `bytes`. Must be called alike on all ranks, between collectives.
  void cut_messages(std::int64_t bytes) {
    options_.largest_message = std::min(options_.largest_message, bytes);
  }
  void set_step(std::int64_t step) { step_ = step; }
  /// `leaders` compare the calls: all ranks, or one of each host.
  void compare_among(const std::vector<int>& leaders) {
    comparison_ = std::make_unique<CallComparison>(handle(), rank(), leaders, names_);
  }

  /// Whether this group, or one that it was split from, is on several hosts.
  bool between_hosts() const { return options_.largest_message <= kBetweenHosts; }

  /// Runs `work` of a call; if `work` throws, sends the error to all ranks. Throws at once if this
  /// rank already knows of a failure.
  void guarded(const CallSignature& signature, const Work& work);
  /// Sends this rank's call to the next leader, runs `work` and returns once the calls compare
  /// equal. Only within guarded().
  void compared(const CallSignature& signature, const Work& work);
  /// Waits for the call of the previous leader and compares it with this rank's.
  void finish_comparison() const;
  /// Messages of the call, and the wait for them; wait() first runs finish_comparison(), because a
  /// rank that makes another call never sends these values.
  std::unique_ptr<Transfers> transfers() const;
  void wait(Transfers& transfers) const;

  /// host::HostTransport::Blame of ranks of this host: they may wait themselves, as their answers
  /// tell.
  std::optional<std::vector<AbsentRank>> blamed(const std::vector<int>& absent,
                                                std::chrono::steady_clock::duration since);

  // Only within compared().
  using ViewOfRank = std::function<View(int)>;
  /// Sends send(p) to, and receives receive(p) from, every peer p at once.
  void send_and_receive(const ViewOfRank& send, const ViewOfRank& receive);
  /// Transport's calls that are the same whether ranks share hosts or not.
  void all_to_all(const Slices& send, const Slices& receive);
  void barrier();

 private:
  /// Polls for failures and checks the wait limits while this rank waits for messages.
  WhileWaiting while_waiting() const;
  Waiting waiting_for(const std::vector<int>& ranks) const;
  /// Throws the error of a wait that has lasted too long, once the answers to inquiries_ tell which
  /// rank is to blame. Returns if none is, or if ranks of other hosts, which can tell better, may
  /// be about to.
  void blame(const LongWait& wait, const std::vector<int>& absent) const;
  [[noreturn]] void blame_all(const LongWait& wait, const std::vector<int>& absent) const;
  std::vector<AbsentRank> described(const std::vector<int>& ranks) const;
  void compare_counts(const Slices& send, const Slices& receive);

  Comm group_;
  Options options_;
  std::shared_ptr<const CallContext> context_;
  mutable Failures failures_;
  std::shared_ptr<Inquiries> inquiries_;
  std::vector<int> names_;
  std::unique_ptr<CallComparison> comparison_;
  std::int64_t step_ = CallContext::kNoStep;
  // The current call.
  Operation operation_ = Operation::barrier;
  std::string who_;  // "[rank 3] all_gather(h.0)"
};

}  // namespace zero::mpi
