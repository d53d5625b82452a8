// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <mpi.h>

#include <optional>
#include <source_location>
#include <string>
#include <vector>

namespace zero::mpi {

/// Throws zero::Error with MPI's message and the call site unless `code` is MPI_SUCCESS.
void check_mpi(int code, std::source_location where = std::source_location::current());

/// The bytes of a message from `source`, a rank of `group` or MPI_ANY_SOURCE, if one has arrived;
/// `from`: the rank that sent it.
std::optional<std::string> take_message(MPI_Comm group, int source, int tag, int* from = nullptr);

/// Sends `text` without waiting: for a job that is about to end. MPI may read it for long, of a
/// rank that does not come, so its memory is never freed.
void send_and_forget(MPI_Comm group, int to, int tag, const std::string& text);
/// The same to all other ranks of `group`.
void tell_peers(MPI_Comm group, int tag, const std::string& text);

/// Of each rank of `part`, in order, its rank in `whole`, of which all ranks of `part` are. Not
/// collective.
std::vector<int> ranks_in(MPI_Comm whole, MPI_Comm part);

/// Throws zero::Error unless the thread level that MPI provides is MPI_THREAD_MULTIPLE.
void check_thread_level(int provided);

/// Whether MPI has been finalised.
bool finalised();

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
