// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <vector>

#include "collectives/host/group.h"

namespace zero::host {
// Peers must learn of a failure even if there is no memory for its message.
void Group::tell_peers(const CallArguments& offer, std::string_view what) {
  try {
    board_.fail(what.starts_with("[rank ") ? std::string(what)
                                           : fmt::format("{}: {}", who(offer), what));
  } catch (const std::exception&) {
    board_.fail("a rank failed and had no memory to say why");
  }
}

std::string Group::who(const CallArguments& offer) const {
  return call_name(seat_.name(), offer.intent.operation, offer.intent.purpose);
}

Waiting Group::waiting(const CallArguments& offer) const {
  Waiting found{.who = who(offer), .step = step_};
  for (int rank = 0; rank < seat_.size; ++rank) {
    const auto& peer = peers_[static_cast<std::size_t>(rank)];
    if (peer && !board_.came(rank)) {
      found.absent.push_back({seat_.name_of(rank), described(peer->process())});
    }
  }
  return found;
}

std::vector<int> Group::absent() const {
  std::vector<int> names;
  for (int rank = 0; rank < seat_.size; ++rank) {
    if (rank != seat_.rank && !board_.came(rank)) names.push_back(seat_.name_of(rank));
  }
  return names;
}

Call Group::call_of(const CallSignature& intent) {
  Call call;
  call.name = call_name(intent.operation, intent.purpose);
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

// All ranks see the disagreement, so all come to this exchange of calls.
void Group::explain(const CallArguments& offer) {
  board_.turn();
  const auto room = static_cast<std::size_t>(board_.body_bytes());
  write_call(call_of(offer.intent), {board_.body(seat_.rank), room});
  pass(offer);
  const auto call = [&](int rank) {
    const std::byte* const body = board_.body(rank);
    return read_call(std::vector<std::byte>(body, body + room));
  };
  const Call mine = call(seat_.rank);  // cut as theirs are
  for (int rank = 0; rank < seat_.size; ++rank) {
    const auto message = mismatch(mine, seat_.name(), call(rank), seat_.name_of(rank));
    if (message) throw Error(*message);
  }
  fail("{}: the ranks' calls differ; check that all ranks make the same calls", who(offer));
}

// Every rank compares every pair, so that all reach the same result.
void Group::check_pairs(const CallArguments& offer) {
  const auto world = static_cast<std::size_t>(seat_.size);
  pairs_.resize(world * world);
  const auto pair = [&](int i, int j) -> Entry& {
    return pairs_[static_cast<std::size_t>(i) * world + static_cast<std::size_t>(j)];
  };
  longest_pair_ = 0;
  for (int i = 0; i < seat_.size; ++i) {
    for (int j = 0; j < seat_.size; ++j) {
      pair(i, j) = read_once(table(i)[j]);
      check_counts(pair(i, j), seat_.name_of(i), seat_.name_of(j), size_of(offer.intent.dtype));
      longest_pair_ = std::max(longest_pair_, pair(i, j).count);
    }
  }
  const auto differ = [&](int i, int j) { return pair(i, j).count != pair(j, i).expected; };
  const auto call = [&](int rank) {
    Call one = call_of(offer.intent);
    one.pairwise = true;
    for (int peer = 0; peer < seat_.size; ++peer) {
      one.counts.push_back(pair(rank, peer).count);
      one.receive_counts.push_back(pair(rank, peer).expected);
    }
    return one;
  };
  std::optional<std::string> elsewhere;
  for (int i = 0; i < seat_.size; ++i) {
    for (int j = 0; j < seat_.size; ++j) {
      if (!differ(i, j)) continue;
      if (i == seat_.rank || j == seat_.rank) {
        const int peer = i == seat_.rank ? j : i;
        throw Error(*mismatch(call(seat_.rank), seat_.rank, call(peer), peer));
      }
      if (!elsewhere) elsewhere = mismatch(call(i), i, call(j), j);
    }
  }
  if (elsewhere) fail("{}: the group has failed: {}", who(offer), *elsewhere);
}

void Group::throw_failure(const CallArguments& offer) const {
  fail("{}: the group has failed: {}", who(offer), board_.failure());
}

// A rank that has left, or whose process has ended, will not come.
void Group::check_peers(const CallArguments& offer) {
  for (int rank = 0; rank < seat_.size; ++rank) {
    const auto& peer = peers_[static_cast<std::size_t>(rank)];
    if (!peer) continue;
    const bool left = board_.left(rank);
    if (!left && !peer->ended()) continue;
    if (board_.all_came() || board_.failed()) return;  // it arrived or reported why first
    fail("{}: rank {} {}; its own message, or the system's log, says why", who(offer),
         seat_.name_of(rank),
         left ? "has left the group" : fmt::format("(process {}) has ended", peer->process().id));
  }
}

}  // namespace zero::host
