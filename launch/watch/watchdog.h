// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <sys/types.h>

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

#include "base/cgroup.h"
#include "launch/watch/fault_finder.h"
#include "launch/watch/fault_reporter.h"
#include "launch/watch/heartbeat_link.h"
#include "launch/watch/host_connection.h"
#include "launch/watch/host_peers.h"
#include "launch/watch/job_ranks.h"
#include "launch/watch/thread_stack.h"

namespace zero {

struct WatchdogOptions {
  /// Seconds in which a rank that others wait for must go on, where FaultFinder times it; 0: five
  /// mean steps, three seconds at least.
  double hang_seconds = 0;
  /// Whether the hosts of a job on several watch each other.
  bool hosts = true;
  /// As HostPeers takes it, and connect_hosts(): empty, but where one machine stands for several.
  std::string host_key{};
  std::vector<std::string> addresses{};
  // All are called on the watchdog's thread.
  /// Tells people of a fault, in lines. Called on one rank of the host, once.
  std::function<void(const std::vector<std::string>&)> tell{};
  /// Called last, on every rank of the host: has ranks of the process keep_files(), and ends it,
  /// even if other threads are blocked.
  std::function<void()> end{};
  /// Tells people that the watchdog itself has failed, and watches no more.
  std::function<void(const std::string&)> warn{};
  /// Processes killed for lack of memory so far, if known.
  std::function<std::optional<std::int64_t>()> memory_kills = [] { return out_of_memory_kills(); };
};

/// Watches the ranks of this host from a thread of this rank: deaths, by pidfds, at once; ranks
/// that hold up others (FaultFinder) by their flight files, five times a second, without a word to
/// them. On a fault the lowest rank that lives tells what its peers' files show, every rank leaves
/// last words in its own, and every process ends. A rank that hangs has its own watchdog take the
/// stacks of its threads before that. Nothing is asked of the host thread.
///
/// The first rank of each host also sees ranks of other hosts, by heartbeats (HeartbeatLink), and
/// tells other hosts of faults here, so that they end in silence; its host's ranks end behind it.
class Watchdog {
 public:
  /// `own` must outlive this object. Watches nothing before watch(). Collective over `world`, all
  /// ranks of the job.
  Watchdog(Communicator& world, Device& device, FlightFile& own, WatchdogOptions options);
  /// Watches no more.
  ~Watchdog();
  Watchdog(const Watchdog&) = delete;
  Watchdog& operator=(const Watchdog&) = delete;

  /// Why ranks of this host are not watched; empty: they are. The same on all ranks of the host.
  const std::string& obstacle() const { return peers_.obstacle(); }
  /// Which hosts do not watch each other, and why; empty: all do. The same on all ranks.
  const std::string& warning() const { return hosts_.warning; }
  /// A thread of this rank (gettid()) whose stack is of interest.
  void know_thread(std::string name, pid_t thread) { threads_.add(std::move(name), thread); }
  void watch();
  /// Calls `refresh`, which brings this rank's flight file up to date, as often as the watchdog
  /// looks, on a thread of its own: it may call a GPU's driver, which blocks all threads while one
  /// is stuck in it. Once. Destruction waits for a call that runs.
  void keep_fresh(std::function<void()> refresh);

  /// Whether another rank that is seen from here has died, or its host answers no more, so that
  /// this watchdog is about to end the process; waits for that as long. Any thread.
  bool another_died(std::chrono::milliseconds patience) const;
  /// Whether ranks of other hosts are, which takes longer. Any thread.
  bool sees_other_hosts() const { return hosts_.link != nullptr; }
  /// Whether another rank that is seen from here and lives has found last words, is about to tell
  /// them and to end, or a rank of another host has told. Any thread.
  bool another_tells() const;
  /// Either of them, at once, but for ranks that answered a signal: this one may have been sent it
  /// too. Any thread.
  bool takes_over() const;
  /// How long this rank waits for others to tell of a wait that took too long for all ranks. 0 for
  /// the hub, which sees most of the job, and where hosts do not watch each other. A rank that
  /// hears the hub waits longer, one that sees its own host alone the longest; of each kind those
  /// of a later host wait longer, up to a limit. Any thread.
  std::chrono::milliseconds patience_with_others() const;
  /// This rank's error as people are to be told of it. Its first line names a host, if the job is
  /// on several: this rank's, unless the error is a collective's; of a wait that took too long that
  /// of the rank that holds it up, as far as this rank sees, or else of the first that the message
  /// names, with who waits for whom in lines behind. Any thread.
  std::string in_full(const std::string& message) const { return reporter_.in_full(message); }
  /// For whom ranks that are seen have waited for longer than a hang takes to be noticed, a line,
  /// with the host where there are several; empty: for nobody, or nobody knows. Any thread.
  std::string waits() const { return reporter_.waits(); }
  /// This rank has failed by an error of its own, of which it is to tell unless another fault ends
  /// it first: whoever tells of that one then tells of this error too, LastWords::own_error. Any
  /// thread.
  void know_error(std::string_view message);
  /// This rank ends for a reason of its own. It tells people itself, if LastWords::is_told();
  /// its watchdog tells nothing any more. Returns false, and leaves nothing, if there are last
  /// words already. Any thread.
  bool leave_words(const LastWords& words) noexcept;
  /// keep_flight_files() of this rank and its peers. Any thread.
  void keep_files() const noexcept;
  /// From here on nothing is told and the process is not ended: it ends by itself. Any thread.
  void rest() noexcept { over_ = true; }
  /// The same, in good order: other hosts hear so. Any thread.
  void leave() noexcept;

 private:
  class Loop;
  void look();
  void act(const Finding& finding);
  /// A rank of another host has told of a fault.
  void follow(const HeartbeatLink::Told& told);
  /// Other hosts hear that `rank` of this one has told people.
  void tell_hosts(int rank, const LastWords& words) noexcept;
  bool write_words(LastWords words) noexcept;
  void speak(const Finding& finding);
  /// Without words: this rank has left some.
  void end(const LastWords& words);
  void keep_stack(bool wanted);
  enum class Is : std::uint8_t { there, dead };
  /// Whether another rank is so, not in good order, and its last words count.
  template <typename Counts>
  bool any_other(Is is, const Counts& counts) const;

  HostPeers peers_;
  FlightFile& own_;
  WatchdogOptions options_;
  HostConnection hosts_;
  JobRanks ranks_;
  FaultFinder finder_;
  FaultReporter reporter_;
  NamedThreads threads_{};
  bool stack_kept_ = false;
  std::int64_t looks_ = 0;
  std::int64_t signs_ = 0;  // signs_of_life() at the last look
  std::optional<std::chrono::steady_clock::time_point> found_{};  // when a fault was first found
  std::mutex words_mutex_;
  std::string own_error_{};  // of know_error()
  std::atomic<bool> words_left_{false};
  std::atomic<bool> over_{false};  // nothing is watched any more
  std::unique_ptr<Loop> loop_;
  std::mutex fresh_mutex_;
  std::condition_variable ends_{};
  std::thread refresher_{};
  std::thread thread_;  // last: both use all other members
};

}  // namespace zero
