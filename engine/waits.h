// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>

#include "device/stream.h"

namespace zero {

/// The waits that order gathers, reductions and updates against compute. Not listed: the norm's
/// wait for the step's compute, the wait for gradients changed from outside, and those of overlap =
/// false.
enum class WaitSite : std::uint8_t {
  gather_before_use,       ///< compute waits for a unit's gather
  publish_before_use,      ///< compute waits for parameters gathered after the step
  release_before_gather,   ///< a gather waits for the last compute that used its memory
  gradient_before_reduce,  ///< a reduce waits for the compute that wrote the gradient or read its
                           ///< shard
  reduce_before_rewrite,   ///< compute waits for the reduce that still reads a gradient window
  update_before_gather,    ///< publishing, and gathers behind it, wait for the unit's update
  norm_before_update,      ///< the update waits for the global norm, and so for every reduce
  read_before_update,      ///< the update waits until a StateReader has read the unit's states
  states_before_update,    ///< the update waits until states are in their window
  update_before_write,     ///< a window is written to its home after the update of its states
  fetch_before_gather,     ///< a gather, and compute that needs it, wait for a shard that is away
  gather_before_fetch,     ///< a shard is fetched to a slot after the last gather from that slot
};

/// The engine's waits. A test may leave one out, to show that a lazy or permuted stream detects the
/// gap. Used by the engine's host thread.
class Waits {
 public:
  void skip(std::optional<WaitSite> site) { skipped_ = site; }
  /// Later work of `stream` runs after `event`.
  void wait(Stream& stream, const Event& event, WaitSite site) const {
    if (skipped_ != site) stream.wait(event);
  }
  /// The same where compute waits for values that are away: counts the time.
  void wait_for_tier(Stream& compute, const Event& event, WaitSite site) const {
    if (skipped_ != site) compute.wait(event, of_tiers_);
  }
  /// Of compute's waits for values that are away, here and elsewhere.
  const WaitMeter& of_tiers() const { return of_tiers_; }
  /// Blocks the host until `event`.
  void synchronize(const Event& event, WaitSite site) const {
    if (skipped_ != site) event.synchronize();
  }

 private:
  std::optional<WaitSite> skipped_;
  WaitMeter of_tiers_{"tiers"};
};

}  // namespace zero
