// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#include "collectives/communicator.h"

#include <array>

#include "base/checked_math.h"
#include "collectives/validate.h"

namespace zero {

std::string_view name_of(Operation operation) {
  constexpr std::array<std::string_view, 6> kNames{"all_gather", "reduce_scatter", "all_reduce",
                                                   "all_to_all", "broadcast",      "barrier"};
  return kNames.at(static_cast<std::size_t>(operation));
}

void Communicator::all_gather(View mine, const Slices& full, Stream& stream, const Tag& tag) {
  validate::all_gather({rank(), size(), Operation::all_gather, tag}, mine, full);
  do_all_gather(mine, full, stream, tag);
}

void Communicator::reduce_scatter(const Slices& full, const ReduceEpilogue& epilogue,
                                  View workspace, Stream& stream, const Tag& tag) {
  const validate::Caller caller{rank(), size(), Operation::reduce_scatter, tag};
  validate::reduce_scatter(caller, full, epilogue);
  validate::workspace(caller, full, epilogue, workspace, do_reduce_scatter_workspace(full));
  do_reduce_scatter(full, epilogue, workspace, stream, tag);
}

std::int64_t Communicator::reduce_scatter_workspace(const Slices& full) const {
  const Tag tag{"workspace"};
  validate::slices({rank(), size(), Operation::reduce_scatter, tag}, full, "full");
  return do_reduce_scatter_workspace(full);
}

void Communicator::all_reduce(View values, ReduceOp op, Stream& stream, const Tag& tag) {
  validate::all_reduce({rank(), size(), Operation::all_reduce, tag}, values);
  do_all_reduce(values, op, stream, tag);
}

void Communicator::all_to_all(const Slices& send, const Slices& receive, Stream& stream,
                              const Tag& tag) {
  validate::all_to_all({rank(), size(), Operation::all_to_all, tag}, send, receive);
  do_all_to_all(send, receive, stream, tag);
}

void Communicator::broadcast(View values, int root, Stream& stream, const Tag& tag) {
  validate::broadcast({rank(), size(), Operation::broadcast, tag}, root);
  do_broadcast(values, root, stream, tag);
}

void Communicator::barrier(Stream& stream, const Tag& tag) {
  validate::tag({rank(), size(), Operation::barrier, tag});
  do_barrier(stream, tag);
}

Buffer Communicator::allocate(Device& device, std::int64_t count, DType dtype,
                              MemoryClass memory_class, std::string_view label) {
  return device.allocate(count, dtype, memory_class, label);
}

CommonBuffer Communicator::allocate_common(Device& device, std::int64_t count, DType dtype,
                                           MemoryClass memory_class, std::string_view label) {
  return {allocate(device, count, dtype, memory_class, label), false};
}

std::int64_t Communicator::sent_bytes(Operation operation, std::int64_t total_bytes, int world) {
  ZERO_CHECK(world >= 1, "a world of {} ranks; expected at least 1", world);
  if (operation == Operation::barrier) return 0;
  const std::int64_t passes = operation == Operation::all_reduce ? 2 : 1;
  return checked_mul(checked_mul(total_bytes, passes), world - 1) / world;
}

}  // namespace zero
