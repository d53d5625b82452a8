// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#include "collectives/collective_backend.h"

#include <array>
#include <atomic>

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

}  // namespace zero
