// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <vector>

namespace zero {

/// Hashes of what a block's forward pass gave, in the order in which the pass computes it.
using PassHashes = std::vector<std::int64_t>;

/// What one rank has found of a block that was computed several times.
struct CheckedPass {
  PassHashes first;        ///< of its own input
  PassHashes again;        ///< of its own input, once more
  PassHashes of_previous;  ///< of the input of the data-parallel rank before; empty: it has no peer
};

/// Ranks whose pass gave several results.
struct ComputeFinding {
  std::vector<int> ranks;  ///< of the world, ascending: those that may have computed wrongly
  std::size_t output = 0;  ///< the first of the pass's outputs that differs
  bool by_peer = false;    ///< found by a peer that computed the same input; else by the rank again
};

/// What the passes of all ranks of the world say. The ranks are data-parallel groups of `tensor`
/// ranks each; rank r computes the input of rank r - tensor, around. The group is wrong whose pass
/// gave two results, or on which two peers disagree with it: the one that computed its input, and
/// the one whose input it computed. If only one of them does, or there are two groups alone, either
/// side may be wrong. In a group it is the rank whose results differ first, or several: a wrong
/// addend of a sum shows on all ranks of the group at once.
std::vector<ComputeFinding> find_wrong_passes(std::span<const CheckedPass> ranks, int tensor);

/// Counts findings by host over a run.
class HostFindings {
 public:
  /// So many findings of a host end the run.
  static constexpr std::size_t kMost = 2;

  /// Counts a finding of step `step`, of ranks that are on `hosts`. Returns the sentence that ends
  /// the run: "host b computed wrongly twice, ..."; nothing: the run may go on. Hosts of which one
  /// is wrong are counted together.
  std::optional<std::string> add(std::int64_t step, std::vector<std::string> hosts);

 private:
  std::map<std::vector<std::string>, std::vector<std::int64_t>> steps_;  // by hosts, sorted
};

}  // namespace zero
