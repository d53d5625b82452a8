// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#include "collectives/mpi/link.h"

#include <algorithm>
#include <optional>
#include <span>

#include "collectives/copy.h"
#include "device/cpu/primitives.h"

namespace zero::mpi {
namespace {

// What a rank receives from `peer`, in a buffer with one equal slot per peer.
View slot(View buffer, int peer, int self, std::int64_t count) {
  return buffer.slice((peer < self ? peer : peer - 1) * count, count);
}

}  // namespace

void Link::guarded(const Intent& intent, const Work& work) {
  operation_ = intent.operation;
  who_ = call_name(rank(), operation_, intent.unit);
  if (const auto& known = failures_.known()) {
    fail("{}: the group has failed: {}", who_, *known);
  }
  try {
    work();
  } catch (const std::exception& error) {
    const std::string_view what = error.what();
    failures_.tell(what.starts_with("[rank ") ? std::string(what)
                                              : fmt::format("{}: {}", who_, what));
    group_.abandon();
    throw;
  }
}

void Link::compared(const Intent& intent, const Work& work) {
  comparison_->start(host::Group::call_of(intent));
  work();
  finish_comparison();
}

void Link::finish_comparison() const { comparison_->finish(while_waiting()); }

std::unique_ptr<Transfers> Link::transfers() const {
  return std::make_unique<Transfers>(handle(), who_, static_cast<int>(operation_),
                                     options_.largest_message);
}

void Link::wait(Transfers& transfers) const {
  finish_comparison();
  transfers.wait(while_waiting());
}

WhileWaiting Link::while_waiting() const {
  // Waits for messages stand behind those of other hosts' ranks for each other.
  static constexpr int kBehind = 1;
  return [this, long_wait = std::optional<LongWait>()](const Absent& absent) mutable {
    if (const auto& heard = failures_.heard()) fail("{}: the group has failed: {}", who_, *heard);
    if (!long_wait) long_wait.emplace(*context_, kBehind);
    long_wait->look([&] {
      Waiting waiting{.who = who_, .step = step_};
      for (const int rank : absent()) waiting.absent.push_back(places_.absent(rank));
      return waiting;
    });
  };
}

void Link::send_and_receive(const ViewOfRank& send, const ViewOfRank& receive) {
  const auto transfers = this->transfers();
  // Each rank begins with its neighbour, so that no rank is everybody's first.
  for (int step = 1; step < size(); ++step) {
    const int from = (rank() + size() - step) % size();
    transfers->receive(receive(from), from);
  }
  for (int step = 1; step < size(); ++step) {
    const int to = (rank() + step) % size();
    transfers->send(send(to), to);
  }
  wait(*transfers);
}

void Link::all_gather(View mine, const Slices& full) {
  send_and_receive([&](int) { return mine; }, [&](int peer) { return full.of(peer); });
  copy(mine, full.of(rank()));
}

void Link::reduce_scatter(const Slices& full, const ReduceEpilogue& epilogue, View workspace) {
  const View own = full.of(rank());
  const auto received = [&](int peer) { return slot(workspace, peer, rank(), own.count()); };
  send_and_receive([&](int peer) { return full.of(peer); }, received);
  std::vector<View> inputs;
  for (int peer = 0; peer < size(); ++peer) inputs.push_back(peer == rank() ? own : received(peer));
  cpu::tree_reduce(inputs, epilogue);
}

void Link::all_reduce(View values, ReduceOp op) {
  if (size() == 1 || values.empty()) return;
  if (values.bytes() <= kWhole && values.bytes() * (size() - 1) <= kStaging) {
    return all_reduce_whole(values, op);
  }
  const std::int64_t part =
      std::max<std::int64_t>(1, kStaging / ((size() - 1) * size_of(values.dtype()))) * size();
  for (std::int64_t begin = 0; begin < values.count(); begin += part) {
    all_reduce_shares(values.slice(begin, std::min(part, values.count() - begin)), op);
  }
}

// Every rank gets every value and combines them all.
void Link::all_reduce_whole(View values, ReduceOp op) {
  const View area = staging(values.count() * (size() - 1), values.dtype());
  const auto received = [&](int peer) { return slot(area, peer, rank(), values.count()); };
  send_and_receive([&](int) { return values; }, received);
  std::vector<View> inputs;
  for (int peer = 0; peer < size(); ++peer) {
    inputs.push_back(peer == rank() ? values : received(peer));
  }
  cpu::combine(inputs, op, values);
}

// Every rank combines its share of the values, then all shares are gathered in place.
void Link::all_reduce_shares(View values, ReduceOp op) {
  const auto share_of = [&](int peer) { return share(values, peer, size()); };
  const View own = share_of(rank());
  const View area = staging(own.count() * (size() - 1), values.dtype());
  const auto received = [&](int peer) { return slot(area, peer, rank(), own.count()); };
  send_and_receive(share_of, received);
  std::vector<View> inputs;
  for (int peer = 0; peer < size(); ++peer) inputs.push_back(peer == rank() ? own : received(peer));
  cpu::combine(inputs, op, own);
  send_and_receive([&](int) { return own; }, share_of);
}

// Only a pair knows what it exchanges, and an empty slice against a full one would be waited for
// without end: each tells the other what it sends and what it expects.
void Link::compare_counts(const Slices& send, const Slices& receive) {
  std::vector<std::int64_t> mine;
  for (std::size_t peer = 0; peer < send.ranges.size(); ++peer) {
    mine.push_back(send.ranges[peer].count);
    mine.push_back(receive.ranges[peer].count);
  }
  std::vector<std::int64_t> theirs = mine;
  const auto of = [](std::vector<std::int64_t>& counts, int peer) {
    return View::of(std::span(counts)).slice(std::int64_t{2} * peer, 2);
  };
  send_and_receive([&](int to) { return of(mine, to); },
                   [&](int from) { return of(theirs, from); });
  for (std::size_t peer = 0; peer < send.ranges.size(); ++peer) {
    if (static_cast<int>(peer) == rank()) continue;
    ZERO_CHECK(theirs[2 * peer] == mine[2 * peer + 1],
               "{}: rank {} sends {} elements, expected receive slice {}'s {}", who_, peer,
               theirs[2 * peer], peer, mine[2 * peer + 1]);
    ZERO_CHECK(theirs[2 * peer + 1] == mine[2 * peer],
               "{}: rank {} expects {} elements, send slice {} has {}", who_, peer,
               theirs[2 * peer + 1], peer, mine[2 * peer]);
  }
}

void Link::all_to_all(const Slices& send, const Slices& receive) {
  compare_counts(send, receive);
  send_and_receive([&](int peer) { return send.of(peer); },
                   [&](int peer) { return receive.of(peer); });
  copy(send.of(rank()), receive.of(rank()));
}

// Small values go from the root to all. Otherwise the root sends each rank one share, and the ranks
// send the shares to each other: the root's link carries the values once, not size() times.
void Link::broadcast(View values, int root) {
  const View none = values.slice(0, 0);
  const bool whole = values.bytes() <= kWhole;
  const auto from_root = [&](int to) { return whole ? values : share(values, to, size()); };
  send_and_receive([&](int to) { return rank() == root ? from_root(to) : none; },
                   [&](int from) { return from == root ? from_root(rank()) : none; });
  if (whole) return;
  const View own = share(values, rank(), size());
  send_and_receive([&](int to) { return to == root ? none : own; },
                   [&](int from) { return rank() == root ? none : share(values, from, size()); });
}

// A byte from each to each, so that a rank knows which others have not come.
void Link::barrier() {
  std::vector<std::byte> bytes(static_cast<std::size_t>(size()));
  const View all(bytes.data(), size(), DType::u8, nullptr);
  send_and_receive([&](int) { return all.slice(rank(), 1); },
                   [&](int peer) { return all.slice(peer, 1); });
}

View Link::staging(std::int64_t count, DType dtype) {
  const auto bytes = static_cast<std::size_t>(count * size_of(dtype));
  if (staging_.size() < bytes) staging_.resize(bytes);
  return {staging_.data(), count, dtype, nullptr};
}

}  // namespace zero::mpi
