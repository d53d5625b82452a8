// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <mpi.h>

#include <optional>
#include <string>
#include <string_view>

namespace zero::mpi {

/// Of a failure that was passed on, the words of the rank that failed.
std::string_view origin_of(std::string_view what);

/// How the ranks of a group hear that one of them failed: it sends its words to all others, who
/// look for them while they wait. The first failure that a rank knows of is kept. One thread at a
/// time.
class Failures {
 public:
  /// `group` must outlive this.
  explicit Failures(MPI_Comm group) : group_(group) {}
  Failures(const Failures&) = delete;
  Failures& operator=(const Failures&) = delete;

  /// Tells all others `what`, unless the failure is known here already. Never throws.
  void tell(std::string_view what) noexcept;
  /// Takes in what others told; gives the failure that this rank knows of.
  const std::optional<std::string>& heard();
  /// The same without a look at what has come.
  const std::optional<std::string>& known() const { return reason_; }

 private:
  MPI_Comm group_;
  std::optional<std::string> reason_;
};

}  // namespace zero::mpi
