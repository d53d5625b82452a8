// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#include "collectives/communicator.h"

#include <algorithm>
#include <array>
#include <cstdint>
#include <utility>

#include "base/checked_math.h"

namespace zero {
namespace {

// The checks behind the public methods. Each throws zero::Error naming rank, operation, purpose and
// both values.
namespace validate {

/// The checked call: the beginning of every message.
struct Caller {
  int rank = 0;
  int world = 1;
  Operation operation = Operation::barrier;
  const Tag& tag;

  /// "[rank 3] reduce_scatter(h.0)"
  std::string name() const { return call_name(rank, operation, tag.purpose); }
};

bool overlap(View a, View b) {
  if (a.empty() || b.empty()) return false;
  const auto a_begin = reinterpret_cast<std::uintptr_t>(a.data());
  const auto b_begin = reinterpret_cast<std::uintptr_t>(b.data());
  return a_begin < b_begin + static_cast<std::uintptr_t>(b.bytes()) &&
         b_begin < a_begin + static_cast<std::uintptr_t>(a.bytes());
}

bool same_memory(View a, View b) {
  return a.data() == b.data() && a.dtype() == b.dtype() && a.count() == b.count();
}

void disjoint(const Caller& caller, View view, std::string_view name, const Slices& slices,
              std::string_view slices_name) {
  for (int r = 0; r < slices.world(); ++r) {
    ZERO_CHECK(!overlap(view, slices.of(r)),
               "{}: {} overlaps slice {} of {}; give it its own memory", caller.name(), name, r,
               slices_name);
  }
}

bool reducible(DType dtype) {
  return dtype == DType::fp32 || dtype == DType::bf16 || dtype == DType::fp16;
}

// Slices come in any order: sorted by begin, each must end before the next begins.
void check_no_overlap(const Caller& caller, const Slices& slices, std::string_view name) {
  std::vector<int> order;
  for (int r = 0; r < slices.world(); ++r) {
    if (slices.of(r).count() > 0) order.push_back(r);
  }
  const auto range = [&](int r) { return slices.ranges[static_cast<std::size_t>(r)]; };
  std::ranges::sort(order, {}, [&](int r) { return range(r).begin; });
  for (std::size_t i = 1; i < order.size(); ++i) {
    const auto a = range(order[i - 1]);
    const auto b = range(order[i]);
    ZERO_CHECK(a.begin + a.count <= b.begin,
               "{}: slice {} of {}, [{}, {}), overlaps slice {}, [{}, {})", caller.name(),
               order[i - 1], name, a.begin, a.begin + a.count, order[i], b.begin,
               b.begin + b.count);
  }
}

void tag(const Caller& caller) {
  ZERO_CHECK(!caller.tag.purpose.empty(),
             "{}: the tag's purpose is empty; name the unit or other purpose of the collective",
             caller.name());
}

// One slice per rank, each inside the buffer, none overlapping another.
void slices(const Caller& caller, const Slices& slices, std::string_view name) {
  ZERO_CHECK(slices.world() == caller.world, "{}: {} has {} slices, expected one per rank, {}",
             caller.name(), name, slices.world(), caller.world);
  bool ascending = true;
  std::int64_t reached = 0;
  for (int r = 0; r < slices.world(); ++r) {
    const auto [begin, count] = slices.ranges[static_cast<std::size_t>(r)];
    ZERO_CHECK(begin >= 0 && count >= 0 && begin <= slices.buffer.count() - count,
               "{}: slice {} of {}, [{}, {}), is outside its buffer of {} elements", caller.name(),
               r, name, begin, begin + count, slices.buffer.count());
    ascending = ascending && (count == 0 || begin >= reached);
    reached = std::max(reached, begin + count);
  }
  if (!ascending) check_no_overlap(caller, slices, name);
}

void all_gather(const Caller& caller, View mine, const Slices& full) {
  tag(caller);
  slices(caller, full, "full");
  const View own = full.of(caller.rank);
  ZERO_CHECK(
      mine.count() == own.count(),
      "{}: mine has {} elements, expected slice {}'s {}; build both views from the same layout",
      caller.name(), mine.count(), caller.rank, own.count());
  ZERO_CHECK(mine.dtype() == full.buffer.dtype(), "{}: mine holds {}, full holds {}; convert first",
             caller.name(), name_of(mine.dtype()), name_of(full.buffer.dtype()));
  if (!same_memory(mine, own)) disjoint(caller, mine, "mine", full, "full");
}

void reduce_scatter(const Caller& caller, const Slices& full, const ReduceEpilogue& epilogue) {
  tag(caller);
  slices(caller, full, "full");
  const View own = full.of(caller.rank);
  const View destination = epilogue.destination;
  ZERO_CHECK(reducible(full.buffer.dtype()), "{}: full holds {}, expected fp32, bf16 or fp16",
             caller.name(), name_of(full.buffer.dtype()));
  ZERO_CHECK(destination.count() == own.count(),
             "{}: destination has {} elements, expected slice {}'s {}; build both views from the "
             "same layout",
             caller.name(), destination.count(), caller.rank, own.count());
  ZERO_CHECK(reducible(destination.dtype()),
             "{}: destination holds {}, expected fp32, bf16 or fp16", caller.name(),
             name_of(destination.dtype()));
  if (!same_memory(destination, own)) disjoint(caller, destination, "destination", full, "full");
  for (std::size_t i = 0; i < epilogue.addends.size(); ++i) {
    const View addend = epilogue.addends[i];
    ZERO_CHECK(addend.dtype() == DType::fp32, "{}: addend {} holds {}, expected fp32",
               caller.name(), i, name_of(addend.dtype()));
    ZERO_CHECK(addend.count() == destination.count(),
               "{}: addend {} has {} elements, expected destination's {}", caller.name(), i,
               addend.count(), destination.count());
    ZERO_CHECK(same_memory(addend, destination) || !overlap(addend, destination),
               "{}: addend {} partly overlaps destination; give both the same memory or none in "
               "common",
               caller.name(), i);
  }
}

void workspace(const Caller& caller, const Slices& full, const ReduceEpilogue& epilogue,
               View workspace, std::int64_t needed) {
  if (needed == 0) return;
  ZERO_CHECK(workspace.count() >= needed,
             "{}: workspace has {} elements, expected at least {}; ask reduce_scatter_workspace()",
             caller.name(), workspace.count(), needed);
  ZERO_CHECK(workspace.dtype() == full.buffer.dtype(), "{}: workspace holds {}, full holds {}",
             caller.name(), name_of(workspace.dtype()), name_of(full.buffer.dtype()));
  disjoint(caller, workspace, "workspace", full, "full");
  ZERO_CHECK(!overlap(workspace, epilogue.destination),
             "{}: workspace overlaps destination; give it its own memory", caller.name());
  for (std::size_t i = 0; i < epilogue.addends.size(); ++i) {
    ZERO_CHECK(!overlap(workspace, epilogue.addends[i]),
               "{}: workspace overlaps addend {}; give it its own memory", caller.name(), i);
  }
}

void all_reduce(const Caller& caller, View values) {
  tag(caller);
  constexpr std::array kDTypes{DType::fp32, DType::fp64, DType::i32, DType::i64};
  ZERO_CHECK(std::ranges::find(kDTypes, values.dtype()) != kDTypes.end(),
             "{}: values hold {}, expected fp32, fp64, i32 or i64", caller.name(),
             name_of(values.dtype()));
}

void all_to_all(const Caller& caller, const Slices& send, const Slices& receive) {
  tag(caller);
  slices(caller, send, "send");
  slices(caller, receive, "receive");
  ZERO_CHECK(send.buffer.dtype() == receive.buffer.dtype(), "{}: send holds {}, receive holds {}",
             caller.name(), name_of(send.buffer.dtype()), name_of(receive.buffer.dtype()));
  const View to_self = send.of(caller.rank);
  const View from_self = receive.of(caller.rank);
  ZERO_CHECK(to_self.count() == from_self.count(),
             "{}: slice {} of send has {} elements, of receive {}; a rank sends itself what it "
             "receives of itself",
             caller.name(), caller.rank, to_self.count(), from_self.count());
  for (int r = 0; r < receive.world(); ++r) {
    for (int s = 0; s < send.world(); ++s) {
      ZERO_CHECK(!overlap(receive.of(r), send.of(s)),
                 "{}: slice {} of receive overlaps slice {} of send; give it its own memory",
                 caller.name(), r, s);
    }
  }
}

void broadcast(const Caller& caller, int root) {
  tag(caller);
  ZERO_CHECK(root >= 0 && root < caller.world, "{}: root {} is outside the world of {} ranks",
             caller.name(), root, caller.world);
}

}  // namespace validate
}  // namespace

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
