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
  const char* section = "collectives";
  std::vector<Operation> operations;
  std::vector<std::int64_t> bytes;  ///< of one rank's full buffer
};

/// all_gather and reduce_scatter of large buffers: the rate of the link between ranks.
CollectiveCases link_cases();
/// Every collective, small to large.
CollectiveCases all_cases();

/// Times collectives on every rank of `communicator`; every rank calls it, all get the same rows.
/// Rates are bytes that one rank sends by the algorithm over the slowest rank's time. Where all
/// ranks share a host the limit is what its memory (`memory.copy`, measured on all cores) could
/// carry if each byte were read and written once.
void measure_collectives(Communicator& communicator, const CollectiveCases& cases,
                         const MemoryRates& memory, Report& report);

}  // namespace zero::bench
