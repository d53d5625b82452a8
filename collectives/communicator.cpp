// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#include "collectives/communicator.h"

#include <utility>

#include "base/checked_math.h"
#include "collectives/validate.h"

namespace zero {

Listening::Listening(const Communicator& communicator, CollectiveListener& listener, Turn turn)
    : context_(communicator.implementation()->context()), listener_(listener) {
  if (turn == Turn::first) {
    context_->add_first(listener_);
  } else {
    context_->add(listener_);
  }
}

Listening::~Listening() { context_->remove(listener_); }

// A collective that the backend refuses is neither counted nor reported as submitted.
template <typename Call>
void Communicator::passed_on(Operation operation, DType dtype, std::int64_t count, Stream& stream,
                             const Tag& tag, const Call& call) {
  const std::int64_t bytes = count * size_of(dtype);
  const std::int64_t sent = sent_bytes(operation, bytes, size());
  const Operation counted_as = tag.counted_as.value_or(operation);
  if (size() == 1 || !context().has_listener()) {
    call();
    return traffic_.add(counted_as, sent);
  }
  const CollectiveRecord record{operation, counted_as, tag.purpose, dtype, bytes, sent};
  context().submitting(record, *backend_, stream);
  const Mark begin = stream.mark();
  call();
  traffic_.add(counted_as, sent);
  context().notify(record, begin, stream.mark());
}

template <typename Call>
auto Communicator::on_hosts(std::string_view name, const Call& call) {
  struct Told {
    Told(CollectiveBackend& of, std::string_view what) : backend(of) {
      if (backend.size() > 1) backend.context()->host_call(backend, what);
    }
    Told(const Told&) = delete;
    Told& operator=(const Told&) = delete;
    ~Told() {
      if (backend.size() > 1) backend.context()->host_call_ended(backend);
    }
    CollectiveBackend& backend;
  };
  const Told told(*backend_, name);
  return call();
}

void Communicator::all_gather(View mine, const Slices& full, Stream& stream, const Tag& tag) {
  validate::all_gather({rank(), size(), Operation::all_gather, tag}, mine, full);
  passed_on(Operation::all_gather, mine.dtype(), full.total(), stream, tag,
            [&] { backend_->all_gather(mine, full, stream, tag); });
}

void Communicator::reduce_scatter(const Slices& full, const ReduceEpilogue& epilogue,
                                  View workspace, Stream& stream, const Tag& tag) {
  const validate::Caller caller{rank(), size(), Operation::reduce_scatter, tag};
  validate::reduce_scatter(caller, full, epilogue);
  validate::workspace(caller, full, epilogue, workspace, backend_->reduce_scatter_workspace(full));
  passed_on(Operation::reduce_scatter, full.buffer.dtype(), full.total(), stream, tag,
            [&] { backend_->reduce_scatter(full, epilogue, workspace, stream, tag); });
}

std::int64_t Communicator::reduce_scatter_workspace(const Slices& full) const {
  const Tag tag{"workspace"};
  validate::slices({rank(), size(), Operation::reduce_scatter, tag}, full, "full");
  return backend_->reduce_scatter_workspace(full);
}

void Communicator::all_reduce(View values, ReduceOp op, Stream& stream, const Tag& tag) {
  validate::all_reduce({rank(), size(), Operation::all_reduce, tag}, values);
  passed_on(Operation::all_reduce, values.dtype(), values.count(), stream, tag,
            [&] { backend_->all_reduce(values, op, stream, tag); });
}

void Communicator::all_to_all(const Slices& send, const Slices& receive, Stream& stream,
                              const Tag& tag) {
  validate::all_to_all({rank(), size(), Operation::all_to_all, tag}, send, receive);
  passed_on(Operation::all_to_all, send.buffer.dtype(), send.total(), stream, tag,
            [&] { backend_->all_to_all(send, receive, stream, tag); });
}

void Communicator::broadcast(View values, int root, Stream& stream, const Tag& tag) {
  validate::broadcast({rank(), size(), Operation::broadcast, tag}, root);
  passed_on(Operation::broadcast, values.dtype(), values.count(), stream, tag,
            [&] { backend_->broadcast(values, root, stream, tag); });
}

void Communicator::barrier(Stream& stream, const Tag& tag) {
  validate::tag({rank(), size(), Operation::barrier, tag});
  passed_on(Operation::barrier, DType::u8, 0, stream, tag, [&] { backend_->barrier(stream, tag); });
}

std::unique_ptr<Communicator> Communicator::split(int color, int key) {
  auto part = on_hosts("split", [&] { return backend_->split(color, key); });
  if (!part) return nullptr;
  if (part->size() > 1) context().split(*backend_, *part);
  return std::make_unique<Communicator>(std::move(part));
}

Buffer Communicator::allocate_symmetric(Device& device, std::int64_t count, DType dtype,
                                        MemoryClass memory_class, std::string_view label) {
  return on_hosts("allocate_symmetric", [&] {
    return backend_->allocate_symmetric(device, count, dtype, memory_class, label);
  });
}

SharedBuffer Communicator::allocate_shared(Device& device, std::int64_t count, DType dtype,
                                           MemoryClass memory_class, std::string_view label) {
  return on_hosts("allocate_shared", [&] {
    return backend_->allocate_shared(device, count, dtype, memory_class, label);
  });
}

std::int64_t Communicator::sent_bytes(Operation operation, std::int64_t total_bytes, int world) {
  ZERO_CHECK(world >= 1, "a world of {} ranks; expected at least 1", world);
  if (operation == Operation::barrier) return 0;
  const std::int64_t passes = operation == Operation::all_reduce ? 2 : 1;
  return checked_mul(checked_mul(total_bytes, passes), world - 1) / world;
}

DeviceClaim::DeviceClaim(const Communicator& communicator, const Device& device,
                         std::string_view who) {
  if (!device.has_memory()) return;
  CollectiveBackend::Claims& claims = communicator.implementation()->claims();
  ZERO_CHECK(claims.count == 0 || claims.device == &device,
             "[rank {}] {}: the communicator serves another device (\"{}\") as long as what was "
             "made with it lives, and this device (\"{}\") would mix its collectives with those; "
             "give both the same device, or this one a communicator of its own: split(0, rank())",
             communicator.rank(), who, claims.device->name(), device.name());
  backend_ = communicator.implementation();
  claims.device = &device;
  ++claims.count;
}

DeviceClaim::~DeviceClaim() {
  if (backend_) --backend_->claims().count;
}

}  // namespace zero
