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

/// MPI of this process while communicators exist. Owns the initialisation where it made it, and the
/// mailboxes of communicators that are gone, so that what they still send is delivered at the end.
class Runtime {
 public:
  /// The runtime of this process; initialises MPI unless the process has. Throws zero::Error where
  /// MPI has already been finalised or gives too low a thread level.
  static std::shared_ptr<Runtime> start(int* argc, char*** argv);
  /// Whether a launcher started this process as a rank of a job.
  static bool launched();
  static bool initialised();

  ~Runtime();
  Runtime(const Runtime&) = delete;
  Runtime& operator=(const Runtime&) = delete;

  /// The memory that this process shares with the `ranks` of its host, made on the first call;
  /// null where the system refuses it, which sets `reason`.
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

/// Owns one MPI communicator whose errors return.
class Comm {
 public:
  /// Takes over `handle`.
  explicit Comm(MPI_Comm handle);
  /// A private copy of `handle`. Collective.
  static Comm copy_of(MPI_Comm handle);
  Comm(Comm&& other) noexcept;
  Comm& operator=(Comm&&) = delete;
  ~Comm();

  /// Has MPI keep the communicator to the end: messages are on their way that no rank will take,
  /// and must not meet another communicator in its place.
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
