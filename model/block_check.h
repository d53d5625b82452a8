// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <functional>
#include <string_view>
#include <vector>

#include "device/view.h"

namespace zero {

/// The forward pass of one block whose input is kept until backward: what it reads and what it
/// leaves, in the activations' memory. The weights are the block's.
struct BlockPass {
  struct Output {
    std::string_view name;
    View values;
  };

  std::int64_t layer = 0;
  View input;                     ///< the residual stream entering the block
  View statistics;                ///< fp32: of the norm that reads it
  std::vector<Output> outputs{};  ///< in the order in which the pass computes them
};

/// Has a model compute the forward pass of some blocks again. The results do not depend on that:
/// behind check() the activations are those of the block's own input.
class BlockCheck {
 public:
  virtual ~BlockCheck() = default;
  /// Whether check() follows for this block of the micro-batch that trains; asked behind each
  /// block's forward pass. The same on all ranks.
  virtual bool wants(std::int64_t layer) = 0;
  /// Behind the pass, as far as it is submitted. `again` submits the same pass anew, from what lies
  /// in pass.input and pass.statistics; it is collective over the tensor group.
  virtual void check(const BlockPass& pass, const std::function<void()>& again) = 0;
};

}  // namespace zero
