// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <map>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "collectives/host/process.h"
#include "collectives/long_wait.h"
#include "collectives/mpi/comm.h"
#include "collectives/mpi/transfers.h"

namespace zero::mpi {

/// The process and host of each rank of a group, for messages about ranks that do not come.
class RankProcesses {
 public:
  /// One line of text that describes this process to the others.
  static std::string mine();

  /// `lines`: mine() of every rank; hosts[r] is equal for ranks of one host; `rank`: this rank.
  RankProcesses(const std::vector<std::string>& lines, const std::vector<int>& hosts, int rank);

  /// "process 4711 is stopped", "on host b: unknown"
  AbsentRank absent(int rank) const;
  bool on_this_host(int rank) const;
  /// The number of hosts.
  int hosts() const { return hosts_; }

 private:
  struct Peer {
    int on = 0;            // the number of its host
    bool visible = false;  // its process can be examined from here
    host::Process process{};
    std::string host;
  };
  std::vector<Peer> peers_;
  int rank_ = 0;
  int hosts_ = 0;
};

/// The questions by which a rank, at the timeout of a wait, finds the rank to blame. It asks all
/// other ranks of the job. A rank that answers waits itself, in a collective of any group, and
/// names the ranks that it waits for: a rank that waits in one group of a mesh may hold up those
/// that wait for it in another. Ranks have their numbers in the job. Shared by a job's
/// communicator and all splits of it. Thread-safe.
class Inquiries {
 public:
  /// `job`: all ranks, used for nothing else, whose processes are `processes`.
  Inquiries(Comm job, RankProcesses processes)
      : job_(std::move(job)), processes_(std::move(processes)) {}
  Inquiries(const Inquiries&) = delete;
  Inquiries& operator=(const Inquiries&) = delete;

  /// Leaves the job's communicator to the process's end, with the messages that are under way.
  void abandon() {
    const std::scoped_lock lock(mutex_);
    job_.abandon();
  }

  MPI_Comm handle() const { return job_.get(); }
  const RankProcesses& processes() const { return processes_; }

  /// Begins a new inquiry, which forgets the answers of an earlier one; joins one that another wait
  /// of this process has just begun.
  void ask();
  /// Receives questions and answers; replies that this rank waits for `absent()`. Call repeatedly
  /// while this rank waits; most calls do nothing.
  void attend(const Absent& absent);

  /// The ranks to blame if this one waits for `absent`, as far as the answers tell
  /// (ranks_to_blame): empty if all wait for each other. Nothing while the answers may not be
  /// trusted: they lead to another host, and no rank of another host has answered, so this host may
  /// be cut off itself.
  std::optional<std::vector<int>> to_blame(const std::vector<int>& absent);
  /// Whether there are other hosts, but none has answered.
  bool cut_off();

 private:
  bool hears_other_hosts() const;

  std::mutex mutex_;
  Comm job_;
  RankProcesses processes_;
  int number_ = 0;  // of this rank's inquiry
  std::chrono::steady_clock::time_point asked_{};
  std::chrono::steady_clock::time_point looked_{};
  std::map<int, std::vector<int>> answers_;  // the ranks that have answered, and their absent ones
};

}  // namespace zero::mpi
