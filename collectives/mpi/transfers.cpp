// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#include "collectives/mpi/transfers.h"

#include <algorithm>

#include "base/checked_math.h"
#include "collectives/mpi/comm.h"

namespace zero::mpi {
namespace {

// Open MPI 5.0.10 may say so although every message has arrived (its issue 13967).
bool is_false_alarm(int code, int all_done, const std::vector<MPI_Status>& statuses) {
  return code == MPI_ERR_IN_STATUS && all_done != 0 &&
         std::ranges::all_of(statuses,
                             [](const MPI_Status& each) { return each.MPI_ERROR == MPI_SUCCESS; });
}

}  // namespace

// Only an error leaves requests behind. Receives are cancelled; sends cannot be.
Transfers::~Transfers() {
  for (std::size_t i = 0; i < requests_.size(); ++i) {
    if (requests_[i] == MPI_REQUEST_NULL) continue;
    if (messages_[i].expected >= 0) MPI_Cancel(&requests_[i]);
    MPI_Request_free(&requests_[i]);
  }
}

void Transfers::send(View view, int to) {
  for (std::int64_t begin = 0; begin < view.bytes(); begin += largest_message_) {
    const std::int64_t bytes = std::min(largest_message_, view.bytes() - begin);
    MPI_Request request = MPI_REQUEST_NULL;
    check_mpi(MPI_Isend(static_cast<const std::byte*>(view.data()) + begin, narrow<int>(bytes),
                        MPI_BYTE, to, tag_, group_, &request));
    requests_.push_back(request);
    messages_.push_back({.peer = to});
  }
}

void Transfers::receive(View view, int from) {
  for (std::int64_t begin = 0; begin < view.bytes(); begin += largest_message_) {
    const std::int64_t bytes = std::min(largest_message_, view.bytes() - begin);
    MPI_Request request = MPI_REQUEST_NULL;
    check_mpi(MPI_Irecv(static_cast<std::byte*>(view.data()) + begin, narrow<int>(bytes), MPI_BYTE,
                        from, tag_, group_, &request));
    requests_.push_back(request);
    messages_.push_back({.peer = from, .expected = bytes});
  }
}

void Transfers::wait(const WhileWaiting& while_waiting) {
  std::vector<MPI_Status> statuses(requests_.size());
  const auto done = [&] {
    int all = 0;
    const int code =
        MPI_Testall(narrow<int>(requests_.size()), requests_.data(), &all, statuses.data());
    if (code != MPI_SUCCESS && !is_false_alarm(code, all, statuses)) throw_first(code, statuses);
    return all != 0;
  };
  wait_until(done, [&] { while_waiting([this] { return absent(); }); });
  check_arrivals(statuses);
  requests_.clear();
  messages_.clear();
}

std::vector<int> Transfers::absent() const {
  std::vector<int> peers;
  for (std::size_t i = 0; i < messages_.size(); ++i) {
    int done = 0;
    check_mpi(MPI_Request_get_status(requests_[i], &done, MPI_STATUS_IGNORE));
    if (done == 0) peers.push_back(name_of(messages_[i].peer));
  }
  std::ranges::sort(peers);
  const auto same = std::ranges::unique(peers);
  peers.erase(same.begin(), same.end());
  return peers;
}

void Transfers::check_arrivals(const std::vector<MPI_Status>& statuses) const {
  for (std::size_t i = 0; i < messages_.size(); ++i) {
    if (messages_[i].expected < 0) continue;
    int count = 0;
    check_mpi(MPI_Get_count(&statuses[i], MPI_BYTE, &count));
    ZERO_CHECK(count == messages_[i].expected,
               "{}: a message of rank {} has {} bytes, expected {}; check that all ranks make the "
               "same calls",
               who_, name_of(messages_[i].peer), count, messages_[i].expected);
  }
}

void Transfers::throw_first(int code, const std::vector<MPI_Status>& statuses) const {
  for (std::size_t i = 0; code == MPI_ERR_IN_STATUS && i < messages_.size(); ++i) {
    const int error = statuses[i].MPI_ERROR;
    if (error == MPI_SUCCESS || error == MPI_ERR_PENDING) continue;
    int error_class = MPI_ERR_OTHER;
    MPI_Error_class(error, &error_class);
    ZERO_CHECK(error_class != MPI_ERR_TRUNCATE,
               "{}: a message of rank {} is longer than the expected {} bytes; check that all "
               "ranks make the same calls",
               who_, name_of(messages_[i].peer), messages_[i].expected);
    code = error;
  }
  try {
    check_mpi(code);
  } catch (const Error& error) {
    fail("{}: {}", who_, error.what());
  }
  fail("{}: MPI reported an error without saying which", who_);
}

}  // namespace zero::mpi
