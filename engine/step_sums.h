// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "device/buffer.h"
#include "device/device_mirror.h"
#include "device/exact_sum.h"
#include "engine/counted_mesh.h"
#include "engine/model_state.h"
#include "engine/state_home.h"
#include "engine/step_report.h"
#include "engine/waits.h"
#include "partition/logical_tensor.h"

namespace zero {

/// The values that a caller has given since the last optimizer step and that must be equal on all
/// ranks, as lines "key: value". Ranks compare a hash in the all-reduce at the end of a step, and
/// the lines only if the hashes differ.
class GivenValues {
 public:
  void add_write(std::string_view name, StateKind kind, const View& values);
  void add_restore(std::int64_t steps_done, std::int64_t steps_skipped);

  /// This rank's addend to the sum of hashes; step() gives `options`.
  std::int64_t hash(std::int64_t step, const StepOptions& options) const;
  /// Throws the same AgreedError on all ranks, naming the first value that differs, unless `sum` is
  /// that of ranks with equal hashes. Collective then.
  void require_equal(std::int64_t sum, std::int64_t step, const StepOptions& options,
                     Communicator& world, Device& device) const;
  void clear() { lines_.clear(); }

 private:
  std::string text(std::int64_t step, const StepOptions& options) const;

  std::string lines_;
};

/// The sums over all ranks at the end of an optimizer step: one exact all-reduce of integers, and
/// the search for the origin of a sum that is not finite.
class StepSums {
 public:
  /// Integers of 8 bytes in the all-reduce: limbs of the gradient norm and of the loss, the vote of
  /// a StateReader, that of the caller of step(), a hash of GivenValues, and whether states are
  /// lost.
  static constexpr std::int64_t kVotes = 4;
  static constexpr std::int64_t kCount = 2 * ExactSum::kLimbs + kVotes;

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
    const StateHome& home;   ///< whose failure() counts: asked behind all submitted compute work
  };
  /// All zero on a planning device.
  struct Totals {
    ExactSum squares;
    ExactSum loss;
    std::int64_t reader_votes = 0;
    std::int64_t votes = 0;
    std::int64_t given = 0;
    std::int64_t lost = 0;  ///< ranks whose states are
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
  Buffer sums_;          ///< of the host
  DeviceMirror mirror_;  ///< their copy on the device, in which they are summed
};

}  // namespace zero
