// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#include "collectives/collective_backend.h"

#include <algorithm>
#include <array>
#include <atomic>
#include <string>

#include "base/checked_math.h"
#include "base/error.h"
#include "collectives/nccl/plan.h"

namespace zero {
namespace {

/// Any thread: ranks may be threads.
std::uint64_t next_id() {
  static std::atomic<std::uint64_t> last{0};
  return last.fetch_add(1, std::memory_order_relaxed) + 1;
}

/// "all_gather(h.0)", cut if too long, without an allocation per call.
class ShortName {
 public:
  ShortName(Operation operation, std::string_view purpose) {
    add(name_of(operation));
    add("(");
    add(purpose.substr(0, std::min(purpose.size(), text_.size() - length_ - 1)));
    add(")");
  }
  std::string_view view() const { return {text_.data(), length_}; }

 private:
  void add(std::string_view part) { length_ += part.copy(text_.data() + length_, part.size()); }

  std::array<char, 96> text_;
  std::size_t length_ = 0;
};

}  // namespace

CollectiveBackend::CollectiveBackend(std::shared_ptr<CallContext> context)
    : context_(std::move(context)), id_(next_id()) {}

std::string_view name_of(BackendKind kind) {
  constexpr std::array<std::string_view, kBackendKinds> kNames{
      "local", "host", "store", "mpi", "nccl", "nccl fast", "planning"};
  return kNames.at(static_cast<std::size_t>(kind));
}

std::int64_t reduce_scatter_workspace(BackendKind backend, const Slices& full) {
  switch (backend) {
    case BackendKind::local:
    case BackendKind::host:
    case BackendKind::store:
      return 0;
    case BackendKind::mpi:
      return checked_mul(full.largest(), full.world() - 1);
    case BackendKind::nccl:
      return nccl::workspace(full, nccl::Sums::exact);
    case BackendKind::nccl_fast:
      return nccl::workspace(full, nccl::Sums::fast);
    case BackendKind::planning:
      break;
  }
  fail("a plan needs the backend that its run will have; {} is none", name_of(backend));
}

bool sums_on_the_way(BackendKind backend) { return backend == BackendKind::nccl_fast; }

template <typename Work>
void BlockingBackend::submit(Stream& stream, Operation operation, const Tag& tag, Work work) {
  const ShortName name(operation, tag.purpose);
  stream.submit(name.view(), [transport = transport_, purpose = tag.purpose,
                              step = context()->step(), work = std::move(work)] {
    transport->set_step(step);
    work(*transport, purpose);
  });
}

void BlockingBackend::all_gather(View mine, const Slices& full, Stream& stream, const Tag& tag) {
  submit(stream, Operation::all_gather, tag,
         [mine, full](Transport& transport, const auto& purpose) {
           transport.all_gather(mine, full, purpose);
         });
}

void BlockingBackend::reduce_scatter(const Slices& full, const ReduceEpilogue& epilogue,
                                     View workspace, Stream& stream, const Tag& tag) {
  submit(stream, Operation::reduce_scatter, tag,
         [full, epilogue, workspace](Transport& transport, const auto& purpose) {
           transport.reduce_scatter(full, epilogue, workspace, purpose);
         });
}

void BlockingBackend::all_reduce(View values, ReduceOp op, Stream& stream, const Tag& tag) {
  submit(stream, Operation::all_reduce, tag,
         [values, op](Transport& transport, const auto& purpose) {
           transport.all_reduce(values, op, purpose);
         });
}

void BlockingBackend::all_to_all(const Slices& send, const Slices& receive, Stream& stream,
                                 const Tag& tag) {
  submit(stream, Operation::all_to_all, tag,
         [send, receive](Transport& transport, const auto& purpose) {
           transport.all_to_all(send, receive, purpose);
         });
}

void BlockingBackend::broadcast(View values, int root, Stream& stream, const Tag& tag) {
  submit(stream, Operation::broadcast, tag,
         [values, root](Transport& transport, const auto& purpose) {
           transport.broadcast(values, root, purpose);
         });
}

void BlockingBackend::barrier(Stream& stream, const Tag& tag) {
  submit(stream, Operation::barrier, tag,
         [](Transport& transport, const auto& purpose) { transport.barrier(purpose); });
}

}  // namespace zero
