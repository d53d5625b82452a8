// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <vector>

#include "tests/cuda/emulator/work_graph.h"

namespace zero::cuda::emulated {

/// Two nodes that touch the same bytes, at least one of them writing, and nobody else writes them
/// in between.
struct Dependence {
  std::int64_t first = 0;
  std::int64_t second = 0;
  ByteRange bytes;  ///< some of them
  Access first_access = Access::read;
  Access second_access = Access::read;
};

/// All of a graph, once for each pair of nodes. If they are ordered, so are any two nodes that must
/// be.
std::vector<Dependence> dependences(const WorkGraph& graph);

/// Bytes that a node reads, and that nothing has written before, as far as one can tell.
struct Unwritten {
  std::int64_t node = 0;
  ByteRange bytes;  ///< the first of them
};
std::vector<Unwritten> unwritten(const WorkGraph& graph);
std::string describe(const WorkGraph& graph, const Unwritten& read);

/// Those that nothing orders.
std::vector<Dependence> unordered(const WorkGraph& graph, const Clocks& clocks,
                                  const std::vector<Dependence>& all);

/// "'adamw' of rank 1's stream 2 writes and 'convert' of ... reads bytes 256 to 512 of ...".
std::string describe(const WorkGraph& graph, const Dependence& dependence);

/// What the waits of streams for other streams are good for, each by itself.
struct WaitUses {
  std::vector<std::int64_t> needed;   ///< without it, some dependence is not ordered
  std::vector<std::int64_t> implied;  ///< all that it orders is ordered without it
  std::vector<std::int64_t> idle;     ///< neither: it orders what nothing depends on
};
WaitUses wait_uses(const WorkGraph& graph, const std::vector<Dependence>& all);

}  // namespace zero::cuda::emulated
