// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#include "collectives/mpi/failures.h"

#include <exception>

#include "collectives/mpi/check.h"

namespace zero::mpi {
namespace {

constexpr int kFailureTag = 101;  // beyond those of operations

}  // namespace

std::string_view origin_of(std::string_view what) {
  constexpr std::string_view kPassedOn = "the group has failed: ";
  const std::size_t at = what.rfind(kPassedOn);
  return at == std::string_view::npos ? what : what.substr(at + kPassedOn.size());
}

void Failures::report(std::string_view what) noexcept {
  if (reason_) return;
  try {
    reason_ = origin_of(what);
    tell_peers(group_, kFailureTag, *reason_);
  } catch (const std::exception&) {
    return;  // MPI is broken too, which ends the job
  }
}

const std::optional<std::string>& Failures::received() {
  while (auto words = take_message(group_, MPI_ANY_SOURCE, kFailureTag)) {
    if (!reason_) reason_ = std::move(words);
  }
  return reason_;
}

}  // namespace zero::mpi
