// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#include "base/checked_math.h"
#include "collectives/collective_backend.h"
#include "collectives/nccl/plan.h"

namespace zero {

std::int64_t reduce_scatter_workspace(std::string_view backend, const Slices& full) {
  if (backend == "local" || backend == "host") return 0;
  if (backend == "nccl") return nccl::workspace(full, nccl::Sums::exact);
  if (backend == "nccl fast") return nccl::workspace(full, nccl::Sums::fast);
  ZERO_CHECK(backend == "mpi",
             "unknown backend \"{}\"; expected local, host, mpi, nccl or nccl fast", backend);
  return checked_mul(full.largest(), full.world() - 1);
}

}  // namespace zero
