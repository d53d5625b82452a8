// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <compare>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "device/device.h"
#include "engine/schedule.h"

namespace zero {

struct Unit;

/// Counts of the graphs captured of the work that leases repeat.
struct CaptureCounts {
  int graphs = 0;          ///< of training and evaluation
  std::int64_t nodes = 0;  ///< pieces of work in them
  int refused = 0;         ///< bodies whose work stays submitted piece by piece
  std::string refusal{};   ///< the reason of the first of these
};

/// Graph capture of the work that leases submit: one graph for each repeat() of each compute step,
/// replayed without the lease's code. The windows of a sealed schedule have fixed addresses, so a
/// graph stays valid; the one effect of a body on the engine's host side, the gradients it asks
/// for, is replayed too.
class GraphCapture {
 public:
  /// Names a graph: the repeat() numbered `nth` of a lease of compute step `compute_step`.
  struct Key {
    bool evaluation = false;
    int compute_step = 0;
    std::size_t nth = 0;
    // NOLINTNEXTLINE(modernize-use-nullptr): clang-tidy 14 sees a null pointer in the comparison
    friend auto operator<=>(const Key&, const Key&) = default;
  };
  /// `check`: when to call a body although its graph is captured.
  GraphCapture(Device& device, CapturedGraph::Check check) : device_(device), check_(check) {}

  /// Submits the work of `body` for `unit` to the compute stream, like Stream::repeat. If other
  /// gradients have been asked for than at the capture, `body` may submit other work, so its graph
  /// is captured again.
  void repeat(const Key& key, Unit& unit, Phase phase, const Stream::Work& body);
  CaptureCounts captured() const;
  void clear() { graphs_.clear(); }

 private:
  struct Graph {
    std::string name;
    std::unique_ptr<CapturedGraph> captured;
    std::vector<char> before;  ///< Unit::requested when the work was captured
    std::vector<char> after;
  };

  Device& device_;
  CapturedGraph::Check check_;
  std::map<Key, Graph> graphs_;
};

}  // namespace zero
