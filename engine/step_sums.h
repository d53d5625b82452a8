// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "device/buffer.h"
#include "device/device_twin.h"
#include "device/exact_sum.h"
#include "engine/counted_mesh.h"
#include "engine/model_state.h"
#include "engine/waits.h"

namespace zero {

/// The sums over all ranks at the end of an optimizer step: one exact all-reduce of integers, and
/// the search for the origin of a sum that is not finite.
class StepSums {
 public:
  /// Integers of 8 bytes in the all-reduce: limbs of the gradient norm and of the loss, the vote of
  /// a StateReader, that of the caller of step(), and a hash of GivenValues.
  static constexpr std::int64_t kCount = 2 * ExactSum::kLimbs + 3;

  /// Allocates the integers. All arguments must outlive this.
  StepSums(CountedMesh& mesh, Device& device, const Waits& waits);

  /// The addends of a rank. The losses count once for each tensor group.
  struct Addends {
    std::span<const double> losses;  ///< read behind all submitted compute work
    ExactSum& squares;               ///< of gradients, which earlier work of the communication
                                     ///< stream completes; cleared
    std::int64_t reader_vote = 0;
    std::int64_t vote = 0;
    std::int64_t given = 0;  ///< GivenValues::hash()
  };
  /// All zero on a planning device.
  struct Totals {
    ExactSum squares;
    ExactSum loss;
    std::int64_t reader_votes = 0;
    std::int64_t votes = 0;
    std::int64_t given = 0;
  };
  /// Sums behind all submitted work; later compute work runs behind the sum. Collective.
  Totals reduce(const Addends& addends);

  /// What is not finite: StepReport::nonfinite and StepReport::nonfinite_rank.
  struct Origin {
    std::string name;
    int rank = -1;
  };
  /// Finds the first parameter with a non-finite gradient in the order of backward, whose units are
  /// `order`, and the lowest rank that had a non-finite loss, else that owns such a gradient. Both
  /// streams must be done with the gradients. Collective.
  Origin find_nonfinite(std::span<const double> losses, const ModelState& state,
                        std::span<const int> order);

 private:
  void all_reduce(const View& sums, ReduceOp op, std::string_view purpose);

  CountedMesh& mesh_;
  Device& device_;
  const Waits& waits_;
  Buffer sums_;      ///< of the host
  DeviceTwin twin_;  ///< their copy on the device, in which they are summed
};

}  // namespace zero
