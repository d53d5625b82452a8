// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#include "collectives/mpi/inquiries.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <sstream>
#include <utility>

#include "base/checked_math.h"
#include "collectives/mpi/check.h"

namespace zero::mpi {
namespace {

// Beyond those of operations and failures. A question is "ASKER NUMBER", its answer "RANK NUMBER",
// and the ranks for which that rank waits.
constexpr int kQuestion = 102;
constexpr int kAnswer = 103;

}  // namespace

void Inquiries::ask() {
  ++number_;
  answers_.clear();
  int rank = 0;
  int size = 1;
  check_mpi(MPI_Comm_rank(group_, &rank));
  check_mpi(MPI_Comm_size(group_, &size));
  for (int peer = 0; peer < size; ++peer) {
    if (peer != rank) send(peer, kQuestion, fmt::format("{} {}", rank, number_));
  }
}

void Inquiries::attend(const Absent& absent) {
  constexpr std::chrono::milliseconds kBetween{5};  // a look costs two probes of messages
  const auto now = std::chrono::steady_clock::now();
  if (now - looked_ < kBetween) return;
  looked_ = now;
  while (const auto question = take_message(group_, MPI_ANY_SOURCE, kQuestion)) {
    int asker = 0;
    int number = 0;
    int rank = 0;
    std::istringstream(*question) >> asker >> number;
    check_mpi(MPI_Comm_rank(group_, &rank));
    send(asker, kAnswer, fmt::format("{} {} {}", rank, number, fmt::join(absent(), " ")));
  }
  while (const auto answer = take_message(group_, MPI_ANY_SOURCE, kAnswer)) {
    std::istringstream words(*answer);
    int rank = 0;
    int number = 0;
    words >> rank >> number;
    if (number != number_) continue;  // of an inquiry before
    std::vector<int>& ranks = answers_[rank];
    for (int each = 0; words >> each;) ranks.push_back(each);
  }
}

void Inquiries::send(int to, int tag, std::string text) {
  // MPI may read it for long, from a rank that does not come: the job is about to end.
  const auto* const words = new std::string(std::move(text));
  MPI_Request request = MPI_REQUEST_NULL;
  check_mpi(
      MPI_Isend(words->data(), narrow<int>(words->size()), MPI_CHAR, to, tag, group_, &request));
  check_mpi(MPI_Request_free(&request));
}

}  // namespace zero::mpi
