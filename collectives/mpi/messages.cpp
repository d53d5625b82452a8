// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#include "collectives/mpi/messages.h"

#include <algorithm>

#include "base/consecutive.h"
#include "collectives/copy.h"
#include "device/cpu/primitives.h"

namespace zero::mpi {

Messages::Messages(Link& link) : link_(link) { link_.compare_among(consecutive(0, link.size())); }

void Messages::call(const Link::CallSignature& signature, const Link::Work& work) {
  link_.guarded(signature, [&] { link_.compared(signature, work); });
}

void Messages::all_gather(View mine, const Slices& full, std::string_view purpose) {
  call(Link::CallSignature::of(Operation::all_gather, full, purpose), [&] {
    link_.send_and_receive([&](int) { return mine; }, [&](int peer) { return full.of(peer); });
    copy(mine, full.of(link_.rank()));
  });
}

// `buffer` has one equal slot per peer.
std::vector<View> Messages::received_in(View buffer, View own) const {
  std::vector<View> views;
  for (int peer = 0; peer < link_.size(); ++peer) {
    const int slot = peer < link_.rank() ? peer : peer - 1;
    views.push_back(peer == link_.rank() ? own : buffer.slice(slot * own.count(), own.count()));
  }
  return views;
}

void Messages::reduce_scatter(const Slices& full, const ReduceEpilogue& epilogue, View workspace,
                              std::string_view purpose) {
  call(Link::CallSignature::of(Operation::reduce_scatter, full, purpose), [&] {
    const std::vector<View> inputs = received_in(workspace, full.of(link_.rank()));
    link_.send_and_receive([&](int peer) { return full.of(peer); },
                           [&](int peer) { return inputs[static_cast<std::size_t>(peer)]; });
    cpu::tree_reduce(inputs, epilogue);
  });
}

void Messages::all_reduce(View values, ReduceOp op, std::string_view purpose) {
  const Slices::Range all{0, values.count()};
  call(Link::CallSignature::of(Operation::all_reduce, values, all, static_cast<int>(op), purpose),
       [&] { combine(values, op); });
}

void Messages::combine(View values, ReduceOp op) {
  const int peers = link_.size() - 1;
  if (peers == 0 || values.empty()) return;
  if (values.bytes() <= Link::kWhole && values.bytes() * peers <= kStaging) {
    return combine_whole(values, op);
  }
  const std::int64_t part =
      std::max<std::int64_t>(1, kStaging / (peers * size_of(values.dtype()))) * link_.size();
  for (std::int64_t begin = 0; begin < values.count(); begin += part) {
    combine_shares(values.slice(begin, std::min(part, values.count() - begin)), op);
  }
}

// Every rank receives all values and combines them.
void Messages::combine_whole(View values, ReduceOp op) {
  const View area = staging(values.count() * (link_.size() - 1), values.dtype());
  const std::vector<View> inputs = received_in(area, values);
  link_.send_and_receive([&](int) { return values; },
                         [&](int peer) { return inputs[static_cast<std::size_t>(peer)]; });
  cpu::combine(inputs, op, values);
}

// Every rank combines its share of the values, then all shares are gathered in place.
void Messages::combine_shares(View values, ReduceOp op) {
  const auto share_of = [&](int peer) { return share(values, peer, link_.size()); };
  const View own = share_of(link_.rank());
  const View area = staging(own.count() * (link_.size() - 1), values.dtype());
  const std::vector<View> inputs = received_in(area, own);
  link_.send_and_receive(share_of,
                         [&](int peer) { return inputs[static_cast<std::size_t>(peer)]; });
  cpu::combine(inputs, op, own);
  link_.send_and_receive([&](int) { return own; }, share_of);
}

View Messages::staging(std::int64_t count, DType dtype) {
  const auto bytes = static_cast<std::size_t>(count * size_of(dtype));
  if (staging_.size() < bytes) staging_.resize(bytes);
  return {staging_.data(), count, dtype, nullptr};
}

void Messages::all_to_all(const Slices& send, const Slices& receive, std::string_view purpose) {
  call({.operation = Operation::all_to_all, .purpose = purpose, .dtype = send.buffer.dtype()},
       [&] { link_.all_to_all(send, receive); });
}

// Small values go from the root to all. Otherwise the root sends each rank one share, and the ranks
// send the shares to each other: the root's link carries the values once, not size() times.
void Messages::broadcast(View values, int root, std::string_view purpose) {
  const Slices::Range all{0, values.count()};
  const int rank = link_.rank();
  const View none = values.slice(0, 0);
  const bool whole = values.bytes() <= Link::kWhole;
  const auto share_of = [&](int of) { return share(values, of, link_.size()); };
  const auto from_root = [&](int to) { return whole ? values : share_of(to); };
  const auto send = [&] {
    link_.send_and_receive([&](int to) { return rank == root ? from_root(to) : none; },
                           [&](int from) { return from == root ? from_root(rank) : none; });
    if (whole) return;
    link_.send_and_receive([&](int to) { return to == root ? none : share_of(rank); },
                           [&](int from) { return rank == root ? none : share_of(from); });
  };
  call(Link::CallSignature::of(Operation::broadcast, values, all, root, purpose), send);
}

void Messages::barrier(std::string_view purpose) {
  call({.operation = Operation::barrier, .purpose = purpose}, [&] { link_.barrier(); });
}

}  // namespace zero::mpi
