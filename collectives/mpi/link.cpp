// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#include "collectives/mpi/link.h"

#include <algorithm>

#include "collectives/copy.h"
#include "collectives/mpi/backoff.h"
#include "collectives/mpi/check.h"
#include "collectives/mpi/transfers.h"
#include "device/cpu/primitives.h"

namespace zero::mpi {
namespace {

// What a rank receives from `peer`, in a buffer with one equal slot per peer.
View slot(View buffer, int peer, int self, std::int64_t count) {
  return buffer.slice((peer < self ? peer : peer - 1) * count, count);
}

}  // namespace

void Link::exchange(Operation operation, std::string_view unit, const ViewOfRank& send,
                    const ViewOfRank& receive) {
  Transfers transfers(handle(), fmt::format("[rank {}] {}({})", rank(), name_of(operation), unit),
                      static_cast<int>(operation), options_.largest_message);
  // Each rank begins with its neighbour, so that no rank is everybody's first.
  for (int step = 1; step < size(); ++step) {
    const int from = (rank() + size() - step) % size();
    transfers.receive(receive(from), from);
  }
  for (int step = 1; step < size(); ++step) {
    const int to = (rank() + step) % size();
    transfers.send(send(to), to);
  }
  transfers.wait();
}

void Link::all_gather(View mine, const Slices& full, std::string_view unit) {
  exchange(
      Operation::all_gather, unit, [&](int) { return mine; },
      [&](int peer) { return full.of(peer); });
  copy(mine, full.of(rank()));
}

void Link::reduce_scatter(const Slices& full, const ReduceEpilogue& epilogue, View workspace,
                          std::string_view unit) {
  const View own = full.of(rank());
  const auto received = [&](int peer) { return slot(workspace, peer, rank(), own.count()); };
  exchange(
      Operation::reduce_scatter, unit, [&](int peer) { return full.of(peer); }, received);
  std::vector<View> inputs;
  for (int peer = 0; peer < size(); ++peer) inputs.push_back(peer == rank() ? own : received(peer));
  cpu::tree_reduce(inputs, epilogue);
}

void Link::all_reduce(View values, ReduceOp op, std::string_view unit) {
  if (size() == 1 || values.empty()) return;
  if (values.bytes() <= kWhole && values.bytes() * (size() - 1) <= kStaging) {
    return all_reduce_whole(values, op, unit);
  }
  const std::int64_t part =
      std::max<std::int64_t>(1, kStaging / ((size() - 1) * size_of(values.dtype()))) * size();
  for (std::int64_t begin = 0; begin < values.count(); begin += part) {
    all_reduce_shares(values.slice(begin, std::min(part, values.count() - begin)), op, unit);
  }
}

// Every rank gets every value and combines them all.
void Link::all_reduce_whole(View values, ReduceOp op, std::string_view unit) {
  const View area = staging(values.count() * (size() - 1), values.dtype());
  const auto received = [&](int peer) { return slot(area, peer, rank(), values.count()); };
  exchange(
      Operation::all_reduce, unit, [&](int) { return values; }, received);
  std::vector<View> inputs;
  for (int peer = 0; peer < size(); ++peer) {
    inputs.push_back(peer == rank() ? values : received(peer));
  }
  cpu::combine(inputs, op, values);
}

// Every rank combines its share of the values, then all shares are gathered in place.
void Link::all_reduce_shares(View values, ReduceOp op, std::string_view unit) {
  const auto share_of = [&](int peer) { return share(values, peer, size()); };
  const View own = share_of(rank());
  const View area = staging(own.count() * (size() - 1), values.dtype());
  const auto received = [&](int peer) { return slot(area, peer, rank(), own.count()); };
  exchange(Operation::all_reduce, unit, share_of, received);
  std::vector<View> inputs;
  for (int peer = 0; peer < size(); ++peer) inputs.push_back(peer == rank() ? own : received(peer));
  cpu::combine(inputs, op, own);
  exchange(
      Operation::all_reduce, unit, [&](int) { return own; }, share_of);
}

void Link::all_to_all(const Slices& send, const Slices& receive, std::string_view unit) {
  exchange(
      Operation::all_to_all, unit, [&](int peer) { return send.of(peer); },
      [&](int peer) { return receive.of(peer); });
  copy(send.of(rank()), receive.of(rank()));
}

// Small values go from the root to all. Otherwise the root sends each rank one share, and the ranks
// send the shares to each other: the root's link carries the values once, not size() times.
void Link::broadcast(View values, int root, std::string_view unit) {
  const View none = values.slice(0, 0);
  const bool whole = values.bytes() <= kWhole;
  const auto from_root = [&](int to) { return whole ? values : share(values, to, size()); };
  exchange(
      Operation::broadcast, unit, [&](int to) { return rank() == root ? from_root(to) : none; },
      [&](int from) { return from == root ? from_root(rank()) : none; });
  if (whole) return;
  const View own = share(values, rank(), size());
  exchange(
      Operation::broadcast, unit, [&](int to) { return to == root ? none : own; },
      [&](int from) { return rank() == root ? none : share(values, from, size()); });
}

void Link::barrier() {
  MPI_Request request = MPI_REQUEST_NULL;
  check_mpi(MPI_Ibarrier(handle(), &request));
  Backoff backoff;
  for (;;) {
    int done = 0;
    check_mpi(MPI_Test(&request, &done, MPI_STATUS_IGNORE));
    if (done != 0) return;
    backoff.pause();
  }
}

View Link::staging(std::int64_t count, DType dtype) {
  const auto bytes = static_cast<std::size_t>(count * size_of(dtype));
  if (staging_.size() < bytes) staging_.resize(bytes);
  return {staging_.data(), count, dtype, nullptr};
}

}  // namespace zero::mpi
