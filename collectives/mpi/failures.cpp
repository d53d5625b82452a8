// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#include "collectives/mpi/failures.h"

#include <exception>

#include "base/checked_math.h"
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

void Failures::tell(std::string_view what) noexcept {
  if (reason_) return;
  try {
    reason_ = origin_of(what);
    int rank = 0;
    int size = 1;
    check_mpi(MPI_Comm_rank(group_, &rank));
    check_mpi(MPI_Comm_size(group_, &size));
    // MPI may read it until the job ends, which is soon.
    const auto* const words = new std::string(*reason_);
    for (int peer = 0; peer < size; ++peer) {
      if (peer == rank) continue;
      MPI_Request request = MPI_REQUEST_NULL;
      check_mpi(MPI_Isend(words->data(), narrow<int>(words->size()), MPI_CHAR, peer, kFailureTag,
                          group_, &request));
      check_mpi(MPI_Request_free(&request));
    }
  } catch (const std::exception&) {
    return;  // MPI is broken too, which ends the job
  }
}

const std::optional<std::string>& Failures::heard() {
  while (auto words = take_message(group_, MPI_ANY_SOURCE, kFailureTag)) {
    if (!reason_) reason_ = std::move(words);
  }
  return reason_;
}

}  // namespace zero::mpi
