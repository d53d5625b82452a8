// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#include "collectives/local/communicator.h"

#include <algorithm>

#include "base/checked_math.h"
#include "collectives/workspace.h"

namespace zero::local {
namespace {

Call call_of(Operation operation, const Tag& tag, std::string details) {
  Call call;
  call.name = fmt::format("{}({})", name_of(operation), tag.unit);
  call.details = std::move(details);
  return call;
}

std::vector<std::int64_t> counts_of(const Slices& slices) {
  std::vector<std::int64_t> counts;
  for (const Slices::Range& range : slices.ranges) counts.push_back(range.count);
  return counts;
}

// Each rank combines one share in place, then copies the others' from their owners. A rank's own
// share is read by nobody else before the barrier, so no memory beside the values is needed.
void all_reduce_shares(View values, ReduceOp op, Exchange& exchange) {
  const int world = exchange.size();
  if (world == 1) return;
  std::vector<View> inputs;
  for (int peer = 0; peer < world; ++peer) {
    inputs.push_back(share(exchange.of(peer).values, exchange.rank(), world));
  }
  exchange.combine(inputs, op, share(values, exchange.rank(), world));
  exchange.barrier();
  for (int peer = 0; peer < world; ++peer) {
    exchange.copy(share(exchange.of(peer).values, peer, world), share(values, peer, world));
  }
}

// Whether the ranks gather to one memory. The same answer, or an error, on every rank.
bool have_one_target(const Exchange& exchange) {
  const auto start_of = [&](int rank) { return exchange.of(rank).slices.buffer.data(); };
  int same = 0;
  for (int a = 0; a < exchange.size(); ++a) {
    for (int b = 0; b < a; ++b)
      same += start_of(a) == start_of(b) && start_of(a) != nullptr ? 1 : 0;
  }
  const int pairs = exchange.size() * (exchange.size() - 1) / 2;
  ZERO_CHECK(same == 0 || same == pairs, "[rank {}] {}: {}", exchange.rank(), exchange.own().name,
             kTargetsApart);
  return same > 0;
}

}  // namespace

LocalCommunicator::LocalCommunicator(std::shared_ptr<Group> group, int rank)
    : LocalCommunicator(std::move(group), rank, std::make_shared<CallContext>()) {}

LocalCommunicator::LocalCommunicator(std::shared_ptr<Group> group, int rank,
                                     std::shared_ptr<CallContext> context)
    : Communicator(std::move(context)), group_(std::move(group)), rank_(rank) {
  group_->take_seat(rank_, this->context());
}

void LocalCommunicator::submit(Stream& stream, Call call, Body body) {
  call.step = context()->step();
  submit_meeting(stream, group_, rank_, std::move(call), std::move(body));
}

void LocalCommunicator::do_all_gather(View mine, const Slices& full, Stream& stream,
                                      const Tag& tag) {
  Call call = call_of(Operation::all_gather, tag, std::string(name_of(mine.dtype())));
  call.counts = counts_of(full);
  call.values = mine;
  call.slices = full;
  submit(stream, std::move(call), [full](Exchange& exchange) {
    if (have_one_target(exchange)) {
      return exchange.copy(exchange.own().values, full.of(exchange.rank()));
    }
    for (int peer = 0; peer < exchange.size(); ++peer) {
      exchange.copy(exchange.of(peer).values, full.of(peer));
    }
  });
}

void LocalCommunicator::do_reduce_scatter(const Slices& full, const ReduceEpilogue& epilogue,
                                          View workspace, Stream& stream, const Tag& tag) {
  static_cast<void>(workspace);  // peers are read in place
  Call call = call_of(Operation::reduce_scatter, tag, std::string(name_of(full.buffer.dtype())));
  call.counts = counts_of(full);
  call.slices = full;
  submit(stream, std::move(call), [epilogue](Exchange& exchange) {
    std::vector<View> inputs;
    for (int peer = 0; peer < exchange.size(); ++peer) {
      inputs.push_back(exchange.of(peer).slices.of(exchange.rank()));
    }
    exchange.tree_reduce(std::move(inputs), epilogue);
  });
}

std::int64_t LocalCommunicator::do_reduce_scatter_workspace(const Slices& full) const {
  return zero::reduce_scatter_workspace(backend(), full);
}

void LocalCommunicator::do_all_reduce(View values, ReduceOp op, Stream& stream, const Tag& tag) {
  Call call = call_of(Operation::all_reduce, tag,
                      fmt::format("{}, {}", name_of(values.dtype()), name_of(op)));
  call.counts = {values.count()};
  call.values = values;
  submit(stream, std::move(call),
         [values, op](Exchange& exchange) { all_reduce_shares(values, op, exchange); });
}

void LocalCommunicator::do_all_to_all(const Slices& send, const Slices& receive, Stream& stream,
                                      const Tag& tag) {
  Call call = call_of(Operation::all_to_all, tag, std::string(name_of(send.buffer.dtype())));
  call.pairwise = true;
  call.counts = counts_of(send);
  call.receive_counts = counts_of(receive);
  call.slices = send;
  submit(stream, std::move(call), [receive](Exchange& exchange) {
    for (int peer = 0; peer < exchange.size(); ++peer) {
      exchange.copy(exchange.of(peer).slices.of(exchange.rank()), receive.of(peer));
    }
  });
}

void LocalCommunicator::do_broadcast(View values, int root, Stream& stream, const Tag& tag) {
  Call call =
      call_of(Operation::broadcast, tag, fmt::format("{}, root {}", name_of(values.dtype()), root));
  call.counts = {values.count()};
  call.values = values;
  submit(stream, std::move(call),
         [values, root](Exchange& exchange) { exchange.copy(exchange.of(root).values, values); });
}

void LocalCommunicator::do_barrier(Stream& stream, const Tag& tag) {
  submit(stream, call_of(Operation::barrier, tag, {}), [](Exchange&) {});
}

CommonBuffer LocalCommunicator::allocate_common(Device& device, std::int64_t count, DType dtype,
                                                MemoryClass memory_class, std::string_view label) {
  const std::int64_t bytes = checked_mul(std::max<std::int64_t>(count, 0), size_of(dtype));
  const bool of_process = device.has_memory() && device.memory() == Memory::of_host;
  if (size() == 1 || bytes == 0 || !of_process) {
    return Communicator::allocate_common(device, count, dtype, memory_class, label);
  }
  const auto memory = group_->allocate_common(rank_, bytes, label);
  return {{{memory.get(), count, dtype, &device},
           memory_class,
           std::string(label),
           device.ledger(),
           [user = memory](void*) { static_cast<void>(user); }},
          true};
}

std::unique_ptr<Communicator> LocalCommunicator::split(int color, int key) {
  int rank = 0;
  auto group = group_->split(rank_, color, key, rank);
  if (!group) return nullptr;
  return std::unique_ptr<Communicator>(new LocalCommunicator(std::move(group), rank, context()));
}

std::unique_ptr<Communicator> single() {
  return std::make_unique<LocalCommunicator>(Group::make(std::make_shared<Job>(1), {0}), 0);
}

}  // namespace zero::local
