// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <mpi.h>

#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "collectives/host/memory.h"

namespace zero::mpi {

class Mailbox;

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

/// Owns one MPI communicator, whose calls return error codes.
class Comm {
 public:
  /// Takes ownership of `handle`.
  explicit Comm(MPI_Comm handle);
  /// A private copy of `handle`. Collective.
  static Comm copy_of(MPI_Comm handle);
  Comm(Comm&& other) noexcept;
  Comm& operator=(Comm&&) = delete;
  ~Comm();

  /// Never frees the communicator: messages on it that no rank will receive must not reach a later
  /// communicator that reuses its identifier.
  void abandon() { abandoned_ = true; }

  MPI_Comm get() const { return handle_; }
  int rank() const { return rank_; }
  int size() const { return size_; }

 private:
  MPI_Comm handle_ = MPI_COMM_NULL;
  bool abandoned_ = false;
  int rank_ = 0;
  int size_ = 1;
};

}  // namespace zero::mpi
