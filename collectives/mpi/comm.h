// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <mpi.h>

namespace zero::mpi {

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
