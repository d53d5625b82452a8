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
struct KeptPasses {
  int passes = 0;           ///< captured, of training and evaluation
  std::int64_t pieces = 0;  ///< of work in them
  int refused = 0;          ///< passes that stay submitted piece by piece
  std::string refusal{};    ///< the reason of the first of these
};

/// Graph capture of the work that leases submit: one graph for each repeat() of each compute step,
/// replayed without the lease's code. The windows of a sealed schedule have fixed addresses, so a
/// graph stays valid; the one effect of a body on the engine's host side, the gradients it asks
/// for, is replayed too.
class GraphCapture {
 public:
  /// The repeat() numbered `nth` of a lease of compute step `step`.
  struct Place {
    bool evaluation = false;
    int step = 0;
    std::size_t nth = 0;
    // NOLINTNEXTLINE(modernize-use-nullptr): clang-tidy 14 sees a null pointer in the comparison
    friend auto operator<=>(const Place&, const Place&) = default;
  };
  /// `check`: when to call a body although its graph is captured.
  GraphCapture(Device& device, CapturedGraph::Check check) : device_(device), check_(check) {}

  /// Submits the work of `body` for `unit` to the compute stream, like Stream::repeat. If other
  /// gradients have been asked for than at the capture, `body` may submit other work, so its graph
  /// is captured again.
  void repeat(const Place& place, Unit& unit, Phase phase, const Stream::Work& body);
  KeptPasses captured() const;
  void clear() { graphs_.clear(); }

 private:
  struct Graph {
    std::string name;
    std::unique_ptr<CapturedGraph> kept;
    std::vector<char> before;  ///< Unit::requested when the work was captured
    std::vector<char> after;
  };

  Device& device_;
  CapturedGraph::Check check_;
  std::map<Place, Graph> graphs_;
};

}  // namespace zero
