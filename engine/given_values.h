// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>

#include "engine/step_report.h"
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

}  // namespace zero
