// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cstring>

#include "collectives/host/group.h"

namespace zero::host {
namespace {

// A Call as bytes that fit a notice's body; a long name is cut.
void write(const Call& call, std::byte* to, std::int64_t room) {
  const auto put = [&](const void* data, std::size_t bytes) {
    if (bytes == 0) return;  // an empty vector may have no data
    std::memcpy(to, data, bytes);
    to += bytes;
  };
  for (const std::string& text : {call.name, call.details}) {
    const std::size_t length = std::min<std::size_t>(text.size(), 1024);
    put(&length, sizeof length);
    put(text.data(), length);
  }
  const auto left = static_cast<std::size_t>(room - 3072) / sizeof(std::int64_t);
  const std::size_t counts = std::min(call.counts.size(), left);
  put(&counts, sizeof counts);
  put(call.counts.data(), counts * sizeof(std::int64_t));
}

Call read(const std::byte* from) {
  const auto take = [&](void* data, std::size_t bytes) {
    if (bytes == 0) return;
    std::memcpy(data, from, bytes);
    from += bytes;
  };
  Call call;
  for (std::string* text : {&call.name, &call.details}) {
    std::size_t length = 0;
    take(&length, sizeof length);
    text->resize(length);
    take(text->data(), length);
  }
  std::size_t counts = 0;
  take(&counts, sizeof counts);
  call.counts.resize(counts);
  take(call.counts.data(), counts * sizeof(std::int64_t));
  return call;
}

}  // namespace

std::string Group::who(const Offer& offer) const {
  return fmt::format("[rank {}] {}({})", seat_.name(), name_of(offer.operation), offer.unit);
}

Waiting Group::waiting(const Offer& offer) const {
  Waiting found{.who = who(offer), .step = step_};
  for (int rank = 0; rank < seat_.size; ++rank) {
    const auto& peer = peers_[static_cast<std::size_t>(rank)];
    if (peer && !board_.came(rank)) {
      found.absent.push_back({seat_.name_of(rank), described(peer->process())});
    }
  }
  return found;
}

Call Group::call_of(const Intent& intent) {
  Call call;
  call.name = fmt::format("{}({})", name_of(intent.operation), intent.unit);
  if (intent.operation != Operation::barrier) call.details = name_of(intent.dtype);
  if (intent.operation == Operation::all_reduce) {
    call.details += fmt::format(", {}", name_of(static_cast<ReduceOp>(intent.detail)));
  }
  if (intent.operation == Operation::broadcast) {
    call.details += fmt::format(", root {}", intent.detail);
  }
  for (const auto& [begin, count] : intent.counts) call.counts.push_back(count);
  return call;
}

// All ranks see that they do not agree, so all come to tell each other what they called.
void Group::explain(const Offer& offer) {
  board_.turn();
  write(call_of(offer.intent()), board_.body(seat_.rank), board_.body_bytes());
  pass(offer);
  const Call mine = read(board_.body(seat_.rank));  // cut as theirs are
  for (int rank = 0; rank < seat_.size; ++rank) {
    const auto message = mismatch(mine, seat_.name(), read(board_.body(rank)), seat_.name_of(rank));
    if (message) throw Error(*message);
  }
  fail("{}: the ranks' calls differ; check that all ranks make the same calls", who(offer));
}

// Every rank compares every pair, so that all come to the same end.
void Group::check_pairs(const Offer& offer) const {
  const auto call = [&](int rank) {
    Call one = call_of(offer.intent());
    one.pairwise = true;
    for (int peer = 0; peer < seat_.size; ++peer) {
      one.counts.push_back(table(rank)[peer].count);
      one.receive_counts.push_back(table(rank)[peer].expected);
    }
    return one;
  };
  std::optional<std::string> elsewhere;
  for (int i = 0; i < seat_.size; ++i) {
    for (int j = 0; j < seat_.size; ++j) {
      if (table(i)[j].count == table(j)[i].expected) continue;
      if (i == seat_.rank || j == seat_.rank) {
        const int peer = i == seat_.rank ? j : i;
        throw Error(*mismatch(call(seat_.rank), seat_.rank, call(peer), peer));
      }
      if (!elsewhere) elsewhere = mismatch(call(i), i, call(j), j);
    }
  }
  if (elsewhere) fail("{}: the group has failed: {}", who(offer), *elsewhere);
}

void Group::throw_failure(const Offer& offer) const {
  fail("{}: the group has failed: {}", who(offer), board_.failure());
}

// A rank that has left, or whose process has ended, will not come any more.
void Group::check_peers(const Offer& offer) {
  for (int rank = 0; rank < seat_.size; ++rank) {
    const auto& peer = peers_[static_cast<std::size_t>(rank)];
    if (!peer) continue;
    const bool left = board_.left(rank);
    if (!left && !ended(peer->process())) continue;
    if (board_.all_came() || board_.failed()) return;  // it came first, or said why
    fail("{}: rank {} {}; its own message, or the system's log, says why", who(offer),
         seat_.name_of(rank),
         left ? "has left the group" : fmt::format("(process {}) has ended", peer->process().id));
  }
}

}  // namespace zero::host
