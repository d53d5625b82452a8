// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <vector>

#include "bench/limits.h"
#include "bench/report.h"
#include "collectives/communicator.h"

namespace zero::bench {

/// Which collectives to time, on full buffers of which sizes.
struct CollectiveCases {
  /// What is measured in turns with ours.
  enum class Beside { nothing, mpi };
  struct One {
    Operation operation = Operation::barrier;
    DType wire = DType::bf16;  ///< what travels; sums are fp32
  };
  const char* section = "collectives";
  std::vector<One> operations;
  std::vector<std::int64_t> bytes;  ///< of one rank's full buffer
  Beside beside = Beside::nothing;
};

/// all_gather and reduce_scatter of large buffers: the rate of the link between ranks.
CollectiveCases link_cases();
/// Every collective, small to large, beside MPI's.
CollectiveCases all_cases();

/// Times collectives on every rank of `communicator`; every rank calls it, all get the same rows.
/// Rates are bytes that one rank sends by the algorithm over the slowest rank's time. Where all
/// ranks share a host the limit is what its memory (`memory.copy`, measured on all cores) could
/// carry if each byte were read and written once. Rows "... over MPI's" hold our rate against that
/// of MPI's own collective on as many bytes, sums in fp32, as the limit. Buffers are registered;
/// calls run on their caller's stream.
void measure_collectives(Communicator& communicator, const CollectiveCases& cases,
                         const MemoryRates& memory, Report& report);

}  // namespace zero::bench
