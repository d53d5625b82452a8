// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <mpi.h>

#include <chrono>
#include <map>
#include <string>
#include <vector>

#include "collectives/mpi/transfers.h"

namespace zero::mpi {

/// The questions by which a rank whose patience is over finds out which rank is to blame. It asks
/// all others of its group. One that answers is in reach and waits itself, in a collective of this
/// group, and its answer tells for which ranks. One thread at a time.
class Inquiries {
 public:
  /// `group` must outlive this.
  explicit Inquiries(MPI_Comm group) : group_(group) {}
  Inquiries(const Inquiries&) = delete;
  Inquiries& operator=(const Inquiries&) = delete;

  /// Begins a new inquiry: forgets the answers of an earlier one.
  void ask();
  /// Takes what has come; answers that this rank waits for `absent()`. Call repeatedly while this
  /// rank waits; most calls do nothing.
  void attend(const Absent& absent);
  /// The ranks that have answered, and for which each of them waits.
  const std::map<int, std::vector<int>>& answers() const { return answers_; }

 private:
  void send(int to, int tag, std::string text);

  MPI_Comm group_;
  int number_ = 0;  // of this rank's inquiry
  std::chrono::steady_clock::time_point looked_{};
  std::map<int, std::vector<int>> answers_;
};

}  // namespace zero::mpi
