// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#include "collectives/mpi/call_comparison.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "base/checked_math.h"
#include "collectives/mpi/backoff.h"
#include "collectives/mpi/comm.h"

namespace zero::mpi {
namespace {

constexpr int kComparisonTag = 100;  // beyond those of operations

// Name, details, counts; texts end with a zero.
std::string pack(const Call& call) {
  std::string bytes;
  for (const std::string& text : {call.name, call.details}) {
    bytes += text.c_str();
    bytes += '\0';
  }
  bytes.append(reinterpret_cast<const char*>(call.counts.data()),
               call.counts.size() * sizeof(std::int64_t));
  return bytes;
}

Call unpack(std::string_view bytes) {
  Call call;
  for (std::string* text : {&call.name, &call.details}) {
    *text = bytes.substr(0, bytes.find('\0'));
    bytes.remove_prefix(text->size() + 1);
  }
  call.counts.resize(bytes.size() / sizeof(std::int64_t));
  if (!bytes.empty()) std::memcpy(call.counts.data(), bytes.data(), bytes.size());
  return call;
}

}  // namespace

CallComparison::CallComparison(MPI_Comm group, int rank, const std::vector<int>& leaders,
                               std::vector<int> names)
    : group_(group), rank_(rank), names_(std::move(names)) {
  const auto at = std::ranges::find(leaders, rank);
  if (at == leaders.end() || leaders.size() == 1) return;
  previous_ = at == leaders.begin() ? leaders.back() : *(at - 1);
  next_ = at + 1 == leaders.end() ? leaders.front() : *(at + 1);
}

// Only an error leaves a message behind; MPI may still read it.
CallComparison::~CallComparison() {
  if (request_ == MPI_REQUEST_NULL) return;
  MPI_Request_free(&request_);
  static_cast<void>(new std::string(std::move(mine_)));
}

void CallComparison::start(const Call& call) {
  if (next_ < 0) return;
  mine_ = pack(call);
  check_mpi(MPI_Isend(mine_.data(), narrow<int>(mine_.size()), MPI_CHAR, next_, kComparisonTag,
                      group_, &request_));
  started_ = true;
}

void CallComparison::finish(const WhileWaiting& while_waiting) {
  if (!started_) return;
  started_ = false;
  const auto name_of = [this](int rank) { return names_[static_cast<std::size_t>(rank)]; };
  std::optional<std::string> theirs;
  int sent = 0;
  const auto done = [&] {
    if (!theirs) theirs = take_message(group_, previous_, kComparisonTag);
    if (sent == 0) check_mpi(MPI_Test(&request_, &sent, MPI_STATUS_IGNORE));
    return theirs && sent != 0;
  };
  wait_until(done, [&] {
    while_waiting([&] { return std::vector<int>{name_of(theirs ? next_ : previous_)}; });
  });
  if (*theirs == mine_) return;
  throw Error(mismatch(unpack(mine_), rank_, unpack(*theirs), previous_, names_).value());
}

}  // namespace zero::mpi
