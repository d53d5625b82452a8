// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#include "collectives/mpi/link.h"

#include <optional>
#include <span>

#include "collectives/copy.h"

namespace zero::mpi {

void Link::guarded(const Intent& intent, const Work& work) {
  operation_ = intent.operation;
  who_ = call_name(rank(), operation_, intent.purpose);
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
  // A wait for messages may stand behind one wait between ranks of another host.
  static constexpr int kBehind = 1;
  return [this, long_wait = std::optional<LongWait>()](const Absent& absent) mutable {
    if (const auto& heard = failures_.heard()) fail("{}: the group has failed: {}", who_, *heard);
    if (!long_wait) long_wait.emplace(*context_, kBehind);
    long_wait->look([&] {
      Waiting waiting{.who = who_, .step = step_};
      for (const int rank : absent()) waiting.absent.push_back(processes_.absent(rank));
      return waiting;
    });
  };
}

void Link::send_and_receive(const ViewOfRank& send, const ViewOfRank& receive) {
  const auto transfers = this->transfers();
  // Each rank begins with its neighbour, so that the ranks do not all send to one rank first.
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

// Only the two ranks of a pair know their counts, and a receive without a matching send would wait
// without end, so each first tells the other how much it sends and expects.
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

// One byte between each two ranks, so that a rank knows which others have not come.
void Link::barrier() {
  std::vector<std::byte> bytes(static_cast<std::size_t>(size()));
  const View all(bytes.data(), size(), DType::u8, nullptr);
  send_and_receive([&](int) { return all.slice(rank(), 1); },
                   [&](int peer) { return all.slice(peer, 1); });
}

}  // namespace zero::mpi
