// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cstring>
#include <utility>
#include <vector>

#include "collectives/call.h"
#include "collectives/host/transport.h"

namespace zero::host {
namespace {

constexpr std::size_t kMostText = 1024;  // bytes of a call's name, and of its details

// Writes a call for peers to read; long names and lists are cut. `to` has at least 8 KiB.
void write_call(const Call& call, std::span<std::byte> to) {
  const auto put = [&](std::uint64_t length, const void* data, std::size_t bytes) {
    std::memcpy(to.data(), &length, sizeof length);
    to = to.subspan(sizeof length);
    if (bytes > 0) std::memcpy(to.data(), data, bytes);  // an empty vector may have no data
    to = to.subspan(bytes);
  };
  for (const std::string& text : {call.name, call.details}) {
    const std::size_t length = std::min(text.size(), kMostText);
    put(length, text.data(), length);
  }
  const std::size_t counts = std::min(call.counts.size(), to.size() / sizeof(std::int64_t) - 1);
  put(counts, call.counts.data(), counts * sizeof(std::int64_t));
}

// Reads the output of write_call().
Call read_call(const std::byte* from) {
  const auto take = [&](void* data, std::size_t bytes) {
    if (bytes > 0) std::memcpy(data, from, bytes);
    from += bytes;
  };
  std::uint64_t length = 0;
  Call call;
  for (std::string* text : {&call.name, &call.details}) {
    take(&length, sizeof length);
    text->resize(length);
    take(text->data(), length);
  }
  take(&length, sizeof length);
  call.counts.resize(length);
  take(call.counts.data(), length * sizeof(std::int64_t));
  return call;
}

}  // namespace

// Peers must learn of a failure even if there is no memory for its message.
void HostTransport::report_failure(const CallArguments& call, std::string_view what) {
  try {
    control_.fail(what.starts_with("[rank ") ? std::string(what)
                                             : fmt::format("{}: {}", error_prefix(call), what));
  } catch (const std::exception&) {
    control_.fail("a rank failed and had no memory to say why");
  }
}

std::string HostTransport::error_prefix(const CallArguments& call) const {
  return call_name(membership_.name(), call.signature.operation, call.signature.purpose);
}

Waiting HostTransport::waiting(const CallArguments& call) const {
  Waiting found{.who = error_prefix(call), .step = step_};
  for (int rank = 0; rank < membership_.size; ++rank) {
    const auto& peer = peers_[static_cast<std::size_t>(rank)];
    if (peer && !control_.has_arrived(rank)) {
      found.absent.push_back({membership_.name_of(rank), described(peer->process())});
    }
  }
  return found;
}

std::vector<int> HostTransport::absent() const {
  std::vector<int> names;
  for (int rank = 0; rank < membership_.size; ++rank) {
    if (rank != membership_.rank && !control_.has_arrived(rank))
      names.push_back(membership_.name_of(rank));
  }
  return names;
}

Call HostTransport::call_of(const CallSignature& signature) {
  Call call;
  call.name = call_name(signature.operation, signature.purpose);
  if (signature.operation != Operation::barrier) call.details = name_of(signature.dtype);
  if (signature.operation == Operation::all_reduce) {
    call.details += fmt::format(", {}", name_of(static_cast<ReduceOp>(signature.detail)));
  }
  if (signature.operation == Operation::broadcast) {
    call.details += fmt::format(", root {}", signature.detail);
  }
  for (const auto& [begin, count] : signature.counts) call.counts.push_back(count);
  return call;
}

// All ranks see the disagreement, so all exchange their calls.
void HostTransport::throw_mismatch(const CallArguments& call) {
  control_.next_call();
  const auto room = static_cast<std::size_t>(control_.body_bytes());
  write_call(call_of(call.signature), {control_.body(membership_.rank), room});
  pass_barrier(call);
  std::vector<Call> calls;  // all are cut alike
  for (int rank = 0; rank < membership_.size; ++rank) {
    calls.push_back(read_call(control_.body(rank)));
  }
  auto odd = odd_calls(calls, membership_.names);
  if (odd) throw CallsDiffer(membership_.name(), odd->text, std::move(odd->ranks));
  const Call& mine = calls[static_cast<std::size_t>(membership_.rank)];
  for (int rank = 0; rank < membership_.size; ++rank) {
    const auto message = mismatch(mine, membership_.rank, calls[static_cast<std::size_t>(rank)],
                                  rank, membership_.names);
    if (message) throw Error(*message);
  }
  fail("{}: the ranks' calls differ; check that all ranks make the same calls", error_prefix(call));
}

// Every rank compares every pair, so that all reach the same result.
void HostTransport::check_pairs(const CallArguments& call) {
  longest_pair_ = 0;
  for (int rank = 0; rank < membership_.size; ++rank) {
    for (int peer = 0; peer < membership_.size; ++peer) {
      longest_pair_ = std::max(longest_pair_, table(rank)[peer].count);
    }
  }
  const auto differ = [&](int i, int j) { return table(i)[j].count != table(j)[i].expected; };
  const auto call_of_rank = [&](int rank) {
    Call one = call_of(call.signature);
    one.pairwise = true;
    for (int peer = 0; peer < membership_.size; ++peer) {
      one.counts.push_back(table(rank)[peer].count);
      one.receive_counts.push_back(table(rank)[peer].expected);
    }
    return one;
  };
  std::optional<std::string> elsewhere;
  for (int i = 0; i < membership_.size; ++i) {
    for (int j = 0; j < membership_.size; ++j) {
      if (!differ(i, j)) continue;
      if (i == membership_.rank || j == membership_.rank) {
        const int peer = i == membership_.rank ? j : i;
        throw Error(*mismatch(call_of_rank(membership_.rank), membership_.rank, call_of_rank(peer),
                              peer, membership_.names));
      }
      if (!elsewhere) {
        elsewhere = mismatch(call_of_rank(i), i, call_of_rank(j), j, membership_.names);
      }
    }
  }
  if (elsewhere) fail("{}: the group has failed: {}", error_prefix(call), *elsewhere);
}

void HostTransport::throw_failure(const CallArguments& call) const {
  fail("{}: the group has failed: {}", error_prefix(call), control_.failure());
}

// A rank that has left, or whose process has ended, will not come.
void HostTransport::check_peers(const CallArguments& call) {
  for (int rank = 0; rank < membership_.size; ++rank) {
    const auto& peer = peers_[static_cast<std::size_t>(rank)];
    if (!peer) continue;
    const bool left = control_.left(rank);
    if (!left && !peer->ended()) continue;
    if (control_.all_arrived() || control_.failed()) return;  // it arrived or reported why first
    fail("{}: rank {} {}; its own message, or the system's log, says why", error_prefix(call),
         membership_.name_of(rank),
         left ? "has left the group" : fmt::format("(process {}) has ended", peer->process().id));
  }
}

}  // namespace zero::host
