// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

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

}  // namespace zero::mpi
