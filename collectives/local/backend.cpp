// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#include "collectives/local/backend.h"

#include <algorithm>

#include "base/checked_math.h"

namespace zero::local {
namespace {

Call call_of(Operation operation, const Tag& tag, std::string details) {
  Call call;
  call.name = call_name(operation, tag.purpose);
  call.details = std::move(details);
  return call;
}

std::vector<std::int64_t> counts_of(const Slices& slices) {
  std::vector<std::int64_t> counts;
  for (const Slices::Range& range : slices.ranges) counts.push_back(range.count);
  return counts;
}

// Each rank combines one share in place, then copies the others' from their owners. No other rank
// reads a rank's own share before the barrier, so no further memory is needed.
void all_reduce_shares(View values, ReduceOp op, PeerOps& ops) {
  const int world = ops.size();
  if (world == 1) return;
  std::vector<View> inputs;
  for (int peer = 0; peer < world; ++peer) {
    inputs.push_back(share(ops.of(peer).values, ops.rank(), world));
  }
  ops.combine(inputs, op, share(values, ops.rank(), world));
  ops.barrier();
  for (int peer = 0; peer < world; ++peer) {
    ops.copy(share(ops.of(peer).values, peer, world), share(values, peer, world));
  }
}

// Whether all ranks gather to the same memory. The same result, or an error, on every rank.
bool have_one_target(const PeerOps& ops) {
  const auto start_of = [&](int rank) { return ops.of(rank).slices.buffer.data(); };
  int same = 0;
  for (int a = 0; a < ops.size(); ++a) {
    for (int b = 0; b < a; ++b)
      same += start_of(a) == start_of(b) && start_of(a) != nullptr ? 1 : 0;
  }
  const int pairs = ops.size() * (ops.size() - 1) / 2;
  ZERO_CHECK(same == 0 || same == pairs, "[rank {}] {}: {}", ops.rank(), ops.own().name,
             kTargetsApart);
  return same > 0;
}

}  // namespace

LocalBackend::LocalBackend(std::shared_ptr<Group> group, int rank,
                           std::shared_ptr<CallContext> context)
    : CollectiveBackend(std::move(context)), group_(std::move(group)), rank_(rank) {
  group_->set_context(rank_, this->context());
}

void LocalBackend::submit(Stream& stream, Call call, Body body) {
  call.step = context()->step();
  submit_round(stream, group_, rank_, std::move(call), std::move(body));
}

void LocalBackend::all_gather(View mine, const Slices& full, Stream& stream, const Tag& tag) {
  Call call = call_of(Operation::all_gather, tag, std::string(name_of(mine.dtype())));
  call.counts = counts_of(full);
  call.values = mine;
  call.slices = full;
  submit(stream, std::move(call), [full](PeerOps& ops) {
    if (have_one_target(ops)) {
      return ops.copy(ops.own().values, full.of(ops.rank()));
    }
    for (int peer = 0; peer < ops.size(); ++peer) {
      ops.copy(ops.of(peer).values, full.of(peer));
    }
  });
}

void LocalBackend::reduce_scatter(const Slices& full, const ReduceEpilogue& epilogue,
                                  View workspace, Stream& stream, const Tag& tag) {
  static_cast<void>(workspace);  // peers are read in place
  Call call = call_of(Operation::reduce_scatter, tag, std::string(name_of(full.buffer.dtype())));
  call.counts = counts_of(full);
  call.slices = full;
  submit(stream, std::move(call), [epilogue](PeerOps& ops) {
    std::vector<View> inputs;
    for (int peer = 0; peer < ops.size(); ++peer) {
      inputs.push_back(ops.of(peer).slices.of(ops.rank()));
    }
    ops.tree_reduce(std::move(inputs), epilogue);
  });
}

void LocalBackend::all_reduce(View values, ReduceOp op, Stream& stream, const Tag& tag) {
  Call call = call_of(Operation::all_reduce, tag,
                      fmt::format("{}, {}", name_of(values.dtype()), name_of(op)));
  call.counts = {values.count()};
  call.values = values;
  submit(stream, std::move(call),
         [values, op](PeerOps& ops) { all_reduce_shares(values, op, ops); });
}

void LocalBackend::all_to_all(const Slices& send, const Slices& receive, Stream& stream,
                              const Tag& tag) {
  Call call = call_of(Operation::all_to_all, tag, std::string(name_of(send.buffer.dtype())));
  call.pairwise = true;
  call.counts = counts_of(send);
  call.receive_counts = counts_of(receive);
  call.slices = send;
  submit(stream, std::move(call), [receive](PeerOps& ops) {
    for (int peer = 0; peer < ops.size(); ++peer) {
      ops.copy(ops.of(peer).slices.of(ops.rank()), receive.of(peer));
    }
  });
}

void LocalBackend::broadcast(View values, int root, Stream& stream, const Tag& tag) {
  Call call =
      call_of(Operation::broadcast, tag, fmt::format("{}, root {}", name_of(values.dtype()), root));
  call.counts = {values.count()};
  call.values = values;
  submit(stream, std::move(call),
         [values, root](PeerOps& ops) { ops.copy(ops.of(root).values, values); });
}

void LocalBackend::barrier(Stream& stream, const Tag& tag) {
  submit(stream, call_of(Operation::barrier, tag, {}), [](PeerOps&) {});
}

SharedBuffer LocalBackend::allocate_shared(Device& device, std::int64_t count, DType dtype,
                                           MemoryClass memory_class, std::string_view label) {
  const std::int64_t bytes = checked_mul(std::max<std::int64_t>(count, 0), size_of(dtype));
  const bool of_process = device.has_memory() && device.memory() == Memory::of_host;
  if (size() == 1 || bytes == 0 || !of_process) {
    return CollectiveBackend::allocate_shared(device, count, dtype, memory_class, label);
  }
  const auto memory = group_->allocate_shared(rank_, bytes, label);
  return {{{memory.get(), count, dtype, &device},
           memory_class,
           std::string(label),
           device.ledger(),
           [user = memory](void*) { static_cast<void>(user); }},
          true};
}

std::shared_ptr<CollectiveBackend> LocalBackend::split(int color, int key) {
  int rank = 0;
  auto group = group_->split(rank_, color, key, rank);
  if (!group) return nullptr;
  return std::make_shared<LocalBackend>(std::move(group), rank, context());
}

std::unique_ptr<Communicator> single() {
  return std::make_unique<Communicator>(
      std::make_shared<LocalBackend>(Group::make(std::make_shared<Job>(1), {0}), 0));
}

}  // namespace zero::local
