// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <list>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "collectives/host/memory.h"
#include "collectives/mpi/comm.h"

namespace zero::mpi {

/// Sends keys and values between the ranks of a group, outside all collectives: set() sends a value
/// to every peer at once, and a peer receives it at its next call. Thread-safe. Made for small
/// values; one beyond MPI's eager limit travels only while both ranks make MPI calls.
class Mailbox {
 public:
  /// `group` is used by this mailbox alone.
  explicit Mailbox(Comm group) : group_(std::move(group)) {}
  ~Mailbox();
  Mailbox(const Mailbox&) = delete;
  Mailbox& operator=(const Mailbox&) = delete;

  void set(std::string_view key, std::string_view value);
  /// Receives arrived values, then returns those of `keys` that have none.
  std::vector<std::string> missing(const std::vector<std::string>& keys);
  /// The value of a key that has one.
  std::string at(const std::string& key);

  /// Tells the peers that this rank will send no more values. Never throws.
  void say_goodbye() noexcept;
  /// Receives arrived messages; true once all peers have said goodbye and all sends are complete.
  bool closed() noexcept;
  /// Leaks the memory of unfinished messages, and the group, because MPI may still access them.
  void abandon() noexcept { abandoned_ = true; }

 private:
  struct Sending {
    std::vector<char> bytes;  // read by MPI until every request is complete
    std::vector<MPI_Request> requests;
  };

  void send_to_peers(std::vector<char> bytes);
  void progress();

  std::mutex mutex_;
  Comm group_;
  std::map<std::string, std::string> values_;
  std::list<Sending> sending_;
  int goodbyes_ = 0;
  bool abandoned_ = false;
};

/// This process's use of MPI while communicators exist. Owns MPI's initialisation, unless the
/// process had initialised MPI, and the mailboxes of communicators that are gone, so that their
/// last messages are delivered at the end.
class Runtime {
 public:
  /// The runtime of this process; initialises MPI unless the process has. Throws zero::Error if MPI
  /// has already been finalised or provides too low a thread level.
  static std::shared_ptr<Runtime> start(int* argc, char*** argv);
  /// Whether a launcher started this process as a rank of a job.
  static bool launched();
  static bool initialised();

  ~Runtime();
  Runtime(const Runtime&) = delete;
  Runtime& operator=(const Runtime&) = delete;

  /// The memory that this process shares with the `ranks` of its host, made on the first call;
  /// null, with `reason` set, if the system refuses.
  std::shared_ptr<host::Memory> memory(int ranks, std::string& reason);

  void retire(std::unique_ptr<Mailbox> mailbox);

 private:
  Runtime(int* argc, char*** argv);

  bool owns_mpi_ = false;
  int exceptions_ = 0;  // in flight when this was made
  std::mutex mutex_;
  std::shared_ptr<host::Memory> memory_;
  std::vector<std::unique_ptr<Mailbox>> retired_;
};

}  // namespace zero::mpi
