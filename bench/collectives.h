// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <vector>

#include "bench/report.h"
#include "collectives/communicator.h"

namespace zero::bench {

struct MemoryRates;

/// The collectives to time, and the sizes of their full buffers.
struct CollectiveCases {
  /// The library that is timed in turns with ours.
  enum class Beside { nothing, mpi };
  struct One {
    Operation operation = Operation::barrier;
    DType wire = DType::bf16;  ///< dtype on the wire; sums are fp32
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
/// A rate is the bytes that one rank sends by the algorithm over the slowest rank's time. If all
/// ranks share a host, the limit is the rate that its memory (`memory.copy`, measured on all cores)
/// could carry if each byte were read and written once. Rows "... over MPI's" have as their limit
/// the rate of MPI's own collective on as many bytes, with sums in fp32. Buffers are registered;
/// calls run on their caller's stream.
void measure_collectives(Communicator& communicator, const CollectiveCases& cases,
                         const MemoryRates& memory, Report& report);

}  // namespace zero::bench
