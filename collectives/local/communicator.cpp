// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#include "collectives/local/communicator.h"

#include <algorithm>

#include "base/checked_math.h"
#include "collectives/copy.h"
#include "collectives/workspace.h"
#include "device/cpu/primitives.h"

namespace zero::local {
namespace {

using Meeting = Group::Meeting;

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
void all_reduce_shares(View values, ReduceOp op, Meeting& meeting) {
  const int world = meeting.size();
  if (world == 1) return;
  std::vector<View> inputs;
  for (int peer = 0; peer < world; ++peer) {
    inputs.push_back(share(meeting.of(peer).values, meeting.rank(), world));
  }
  cpu::combine(inputs, op, share(values, meeting.rank(), world));
  meeting.barrier();
  for (int peer = 0; peer < world; ++peer) {
    copy(share(meeting.of(peer).values, peer, world), share(values, peer, world));
  }
}

// Whether the ranks gather to one memory. The same answer, or an error, on every rank.
bool have_one_target(const Meeting& meeting) {
  const auto start_of = [&](int rank) { return meeting.of(rank).slices.buffer.data(); };
  int same = 0;
  for (int a = 0; a < meeting.size(); ++a) {
    for (int b = 0; b < a; ++b)
      same += start_of(a) == start_of(b) && start_of(a) != nullptr ? 1 : 0;
  }
  const int pairs = meeting.size() * (meeting.size() - 1) / 2;
  ZERO_CHECK(same == 0 || same == pairs, "[rank {}] {}: {}", meeting.rank(),
             meeting.of(meeting.rank()).name, kTargetsApart);
  return same > 0;
}

}  // namespace

void LocalCommunicator::submit(Stream& stream, Call call, std::function<void(Meeting&)> exchange) {
  const std::string name = call.name;
  stream.submit(name, [group = group_, rank = rank_, call = std::move(call),
                       exchange = std::move(exchange)] { group->meet(rank, call, exchange); });
}

void LocalCommunicator::do_all_gather(View mine, const Slices& full, Stream& stream,
                                      const Tag& tag) {
  Call call = call_of(Operation::all_gather, tag, std::string(name_of(mine.dtype())));
  call.counts = counts_of(full);
  call.values = mine;
  call.slices = full;
  submit(stream, std::move(call), [full](Meeting& meeting) {
    if (have_one_target(meeting)) {
      return copy(meeting.of(meeting.rank()).values, full.of(meeting.rank()));
    }
    for (int peer = 0; peer < meeting.size(); ++peer) {
      copy(meeting.of(peer).values, full.of(peer));
    }
  });
}

void LocalCommunicator::do_reduce_scatter(const Slices& full, const ReduceEpilogue& epilogue,
                                          View workspace, Stream& stream, const Tag& tag) {
  static_cast<void>(workspace);  // peers are read in place
  Call call = call_of(Operation::reduce_scatter, tag, std::string(name_of(full.buffer.dtype())));
  call.counts = counts_of(full);
  call.slices = full;
  submit(stream, std::move(call), [epilogue](Meeting& meeting) {
    std::vector<View> inputs;
    for (int peer = 0; peer < meeting.size(); ++peer) {
      inputs.push_back(meeting.of(peer).slices.of(meeting.rank()));
    }
    cpu::tree_reduce(inputs, epilogue);
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
         [values, op](Meeting& meeting) { all_reduce_shares(values, op, meeting); });
}

void LocalCommunicator::do_all_to_all(const Slices& send, const Slices& receive, Stream& stream,
                                      const Tag& tag) {
  Call call = call_of(Operation::all_to_all, tag, std::string(name_of(send.buffer.dtype())));
  call.pairwise = true;
  call.counts = counts_of(send);
  call.receive_counts = counts_of(receive);
  call.slices = send;
  submit(stream, std::move(call), [receive](Meeting& meeting) {
    for (int peer = 0; peer < meeting.size(); ++peer) {
      copy(meeting.of(peer).slices.of(meeting.rank()), receive.of(peer));
    }
  });
}

void LocalCommunicator::do_broadcast(View values, int root, Stream& stream, const Tag& tag) {
  Call call =
      call_of(Operation::broadcast, tag, fmt::format("{}, root {}", name_of(values.dtype()), root));
  call.counts = {values.count()};
  call.values = values;
  submit(stream, std::move(call),
         [values, root](Meeting& meeting) { copy(meeting.of(root).values, values); });
}

void LocalCommunicator::do_barrier(Stream& stream, const Tag& tag) {
  submit(stream, call_of(Operation::barrier, tag, {}), [](Meeting&) {});
}

CommonBuffer LocalCommunicator::allocate_common(Device& device, std::int64_t count, DType dtype,
                                                MemoryClass memory_class, std::string_view label) {
  const std::int64_t bytes = checked_mul(std::max<std::int64_t>(count, 0), size_of(dtype));
  const bool of_process = device.name() == "cpu" || device.name() == "test";
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
  return std::make_unique<LocalCommunicator>(std::move(group), rank);
}

std::unique_ptr<Communicator> single() {
  return std::make_unique<LocalCommunicator>(Group::make(std::make_shared<Job>(1), {0}), 0);
}

}  // namespace zero::local
