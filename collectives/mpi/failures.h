// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <mpi.h>

#include <optional>
#include <string>
#include <string_view>

namespace zero::mpi {

/// The message of the rank that failed, from that of a failure that was passed on.
std::string_view origin_of(std::string_view what);

/// Failures in a group: a rank that fails sends its message to all others, which poll for such
/// messages while they wait. Keeps the first failure that this rank learns of. One thread at a
/// time.
class Failures {
 public:
  /// `group` must outlive this.
  explicit Failures(MPI_Comm group) : group_(group) {}
  Failures(const Failures&) = delete;
  Failures& operator=(const Failures&) = delete;

  /// Sends `what` to all others, unless a failure is already known here. Never throws.
  void report(std::string_view what) noexcept;
  /// Receives messages of others; returns the failure that this rank knows of.
  const std::optional<std::string>& received();
  /// The same without receiving.
  const std::optional<std::string>& known() const { return reason_; }

 private:
  MPI_Comm group_;
  std::optional<std::string> reason_;
};

}  // namespace zero::mpi
