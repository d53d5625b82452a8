// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#include "collectives/host/communicator.h"

#include <utility>

#include "collectives/backends.h"
#include "collectives/host/buffers.h"
#include "collectives/local/communicator.h"
#include "collectives/store_split.h"
#include "collectives/workspace.h"

namespace zero::host {

HostCommunicator::HostCommunicator(std::shared_ptr<Memory> memory, const std::string& reason,
                                   const StoreSeat& seat, const std::string& name,
                                   std::shared_ptr<CallContext> context)
    : Communicator(std::move(context)),
      seat_(seat),
      name_(name),
      store_(seat.store, name + "/user"),
      memory_(std::move(memory)) {
  auto joined = Group::join(memory_, reason, {seat.rank, seat.size, {}}, exchange());
  ZERO_CHECK(joined.group != nullptr,
             "[rank {}] the ranks cannot share memory: {}; without MPI, processes that compute on "
             "the CPU are those of one host, one user and one container: start others with mpirun, "
             "or as threads with --local-ranks",
             seat.rank, joined.refusal);
  group_ = std::move(joined.group);
  group_->set_context(this->context());
}

std::string HostCommunicator::next_key(std::string_view purpose) {
  return fmt::format("{}/{}/{}", name_, purpose, meetings_++);
}

Group::Exchange HostCommunicator::exchange() {
  return [this](const std::string& mine) { return zero::exchange(seat_, next_key("line"), mine); };
}

std::unique_ptr<Communicator> HostCommunicator::split(int color, int key) {
  const std::string name = next_key("split");
  const StoreSplit part = zero::split(seat_, name, color, key);
  if (part.rank < 0) return nullptr;
  const StoreSeat seat{seat_.store, part.rank, static_cast<int>(part.members.size()),
                       seat_.timeout};
  return std::make_unique<HostCommunicator>(
      memory_, "", seat, fmt::format("{}/{}", name, part.members.front()), context());
}

Buffer HostCommunicator::allocate(Device& device, std::int64_t count, DType dtype,
                                  MemoryClass memory_class, std::string_view label) {
  return shared_buffer(memory_, {device, count, dtype, memory_class, label});
}

CommonBuffer HostCommunicator::allocate_common(Device& device, std::int64_t count, DType dtype,
                                               MemoryClass memory_class, std::string_view label) {
  if (size() > 1) {
    auto made = common_buffer(*group_, exchange(), {device, count, dtype, memory_class, label});
    if (made) return {std::move(*made), true};
  }
  return {allocate(device, count, dtype, memory_class, label), false};
}

template <typename Work>
void HostCommunicator::submit(Stream& stream, Operation operation, const Tag& tag, Work work) {
  stream.submit(
      fmt::format("{}({})", name_of(operation), tag.unit),
      [group = group_, unit = tag.unit, step = context()->step(), work = std::move(work)] {
        group->set_step(step);
        work(*group, unit);
      });
}

void HostCommunicator::do_all_gather(View mine, const Slices& full, Stream& stream,
                                     const Tag& tag) {
  submit(stream, Operation::all_gather, tag, [mine, full](Group& group, const std::string& unit) {
    group.all_gather(mine, full, unit);
  });
}

void HostCommunicator::do_reduce_scatter(const Slices& full, const ReduceEpilogue& epilogue,
                                         View workspace, Stream& stream, const Tag& tag) {
  static_cast<void>(workspace);  // peers are read in place
  submit(stream, Operation::reduce_scatter, tag,
         [full, epilogue](Group& group, const std::string& unit) {
           group.reduce_scatter(full, epilogue, unit);
         });
}

std::int64_t HostCommunicator::do_reduce_scatter_workspace(const Slices& full) const {
  return zero::reduce_scatter_workspace(backend(), full);
}

void HostCommunicator::do_all_reduce(View values, ReduceOp op, Stream& stream, const Tag& tag) {
  submit(stream, Operation::all_reduce, tag, [values, op](Group& group, const std::string& unit) {
    group.all_reduce(values, op, unit);
  });
}

void HostCommunicator::do_all_to_all(const Slices& send, const Slices& receive, Stream& stream,
                                     const Tag& tag) {
  submit(stream, Operation::all_to_all, tag,
         [send, receive](Group& group, const std::string& unit) {
           group.all_to_all(send, receive, unit);
         });
}

void HostCommunicator::do_broadcast(View values, int root, Stream& stream, const Tag& tag) {
  submit(stream, Operation::broadcast, tag, [values, root](Group& group, const std::string& unit) {
    group.broadcast(values, root, unit);
  });
}

void HostCommunicator::do_barrier(Stream& stream, const Tag& tag) {
  submit(stream, Operation::barrier, tag,
         [](Group& group, const std::string& unit) { group.barrier(unit); });
}

std::unique_ptr<Communicator> world(const StoreSeat& seat) {
  if (seat.size == 1) return local::single();
  std::string reason;
  std::shared_ptr<Memory> memory;
  try {
    memory = std::make_shared<Memory>(seat.size);
  } catch (const std::exception& error) {  // whatever it is, the peers wait to hear it
    reason = error.what();
  }
  return std::make_unique<HostCommunicator>(std::move(memory), reason, seat, "host");
}

}  // namespace zero::host
