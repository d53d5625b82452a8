// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#include "engine/given_values.h"

#include "base/error.h"
#include "collectives/agreement.h"
#include "engine/value_hash.h"

namespace zero {
void GivenValues::add_write(std::string_view name, StateKind kind, const View& values) {
  lines_ += fmt::format("write({}, {}): values of hash {:016x}\n", name, name_of(kind),
                        hash_values(values, 0));
}

void GivenValues::add_restore(std::int64_t steps_done, std::int64_t steps_skipped) {
  lines_ += fmt::format("restore: {} steps done, {} skipped\n", steps_done, steps_skipped);
}

std::string GivenValues::text(std::int64_t step, const StepOptions& options) const {
  return fmt::format("step: {}\n{}learning_rate: {}\nloss_scale: {}\n", step, lines_,
                     options.learning_rate, options.loss_scale);
}

std::int64_t GivenValues::hash(std::int64_t step, const StepOptions& options) const {
  return static_cast<std::int64_t>(hash_text(text(step, options), 0));
}

void GivenValues::require_equal(std::int64_t sum, std::int64_t step, const StepOptions& options,
                                Communicator& world, Device& device) const {
  const auto mine = static_cast<std::uint64_t>(hash(step, options));
  if (static_cast<std::uint64_t>(sum) == mine * static_cast<std::uint64_t>(world.size())) return;
  require_agreement(world, device, "step", text(step, options));
  fail(
      "[rank {}] step {}: the sum of hashes of all ranks' settings is not that of equal ones, but "
      "the settings are equal; memory or a transport has changed a value: test the hosts",
      world.rank(), step);
}

}  // namespace zero
