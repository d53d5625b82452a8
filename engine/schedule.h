// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <limits>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/dtype.h"

namespace zero {

/// The least that ScheduleLimits::live_elements is if it is not given: DeepSpeed's default.
inline constexpr std::int64_t kLiveElements = 1'000'000'000;

/// Limits on communication and memory, in elements, as DeepSpeed counts them.
struct ScheduleLimits {
  /// Most elements gathered ahead of use (stage3_prefetch_bucket_size); unset: two units, and
  /// before a unit larger than these as many as are together no larger than it. Also decides how
  /// long a reduction may take: a gradient of at most this size (unset: 50 million), and at most a
  /// third of live_elements, has two compute steps until its window is written again; a larger one
  /// has one.
  std::optional<std::int64_t> prefetch_elements{};
  /// Most gathered at once, but always room for one unit; unset: kLiveElements, or the largest two
  /// units that are gathered for uses behind one another if these are more, so that each can be
  /// gathered while the one before it computes.
  std::optional<std::int64_t> live_elements{};
  /// Parameters of at most this many elements stay whole; unset: 100,000, and, if prefetch_elements
  /// is unset too, units stay whole that would take as much memory gathered (engine/whole_units.h).
  std::optional<std::int64_t> persistence_threshold{};
  std::int64_t reuse_distance =
      0;  ///< keep a unit whose next use is at most this many elements away
  /// Bounds one reduce-scatter, which otherwise is of a whole unit, or cut as memory wants it.
  std::int64_t reduce_bucket_elements = std::numeric_limits<std::int64_t>::max();
};

/// "auto" if unset.
std::string limit_text(const std::optional<std::int64_t>& limit);

/// The use that one compute step makes of its unit.
enum class Phase : std::uint8_t {
  forward,
  backward,
  both,       ///< forward and backward in one lease (a fused head); forward alone in evaluation
  recompute,  ///< forward once more, for a backward; no use in evaluation
};

/// Whether the use writes the gradients of its unit.
constexpr bool writes_gradients(Phase phase) {
  return phase == Phase::backward || phase == Phase::both;
}

/// "forward", "backward", "forward+backward", "recompute".
std::string_view name_of(Phase phase);

/// A registered unit.
struct UnitId {
  int index = -1;
  friend bool operator==(UnitId, UnitId) = default;
};

/// One use of a unit in a micro-batch: one compute step, one lease.
struct Use {
  UnitId unit;
  Phase phase = Phase::forward;
  bool needs_parameters = true;  ///< false: a backward that reads no parameters (an embedding's)
};

/// A unit's sizes, input of the scheduler.
struct UnitSize {
  std::int64_t gathered_elements =
      0;  ///< that a gather brings: the large parameters of all segments, frozen ones too, padded
  std::int64_t gathered_bytes = 0;
  std::int64_t gradient_bytes =
      0;  ///< of the gradient window; 0 if the unit has no window of its own
  std::int64_t gradient_elements = 0;  ///< of that window, padded
};

/// A range of the windows' arena that one unit's parameters or gradients occupy for a run of
/// compute steps.
struct Window {
  enum class Kind : std::uint8_t { parameters, gradients };
  int unit = 0;
  Kind kind = Kind::parameters;
  int issue = 0;  ///< compute step before which the gather is issued (-1: before the micro-batch);
                  ///< first write for gradients
  int first = 0;  ///< first compute step that uses it
  int last = 0;   ///< last compute step that uses it; after it: released, or reduced
  std::int64_t offset = 0;  ///< bytes into the arena
  std::int64_t bytes = 0;
  std::vector<int> conflicts;  ///< windows that share bytes of the arena with this one: it waits
                               ///< for their last users
};

/// The actions around a compute step, in this order: issue `gathers`, wait for the window
/// `parameters`, compute, then (last_gradient) start the gradient's reduction and (release) release
/// the parameter window.
struct ScheduleStep {
  Use use;
  std::vector<int>
      gathers;          ///< windows (indices) whose gather is issued before this step's compute
  int parameters = -1;  ///< window this step reads, waited for; -1: none (whole, or not needed)
  int gradients = -1;   ///< window this step writes; -1: none
  bool first_gradient = false;  ///< the first write of this unit's gradient in the micro-batch
  bool last_gradient = false;   ///< after this step the gradient is complete: reduce
  bool release = false;         ///< after this step the parameter window is released
};

/// The static schedule of one micro-batch: data, made once at seal(), the same on every rank. The
/// streams and the planner follow it.
struct Schedule {
  std::vector<Window> windows;
  std::vector<int> begin;  ///< windows whose gather is issued before the micro-batch starts
  std::vector<ScheduleStep> steps;
  std::int64_t gradients_begin =
      0;  ///< of the arena: parameter windows lie before, gradients' behind
  std::int64_t arena_bytes = 0;
  std::int64_t peak_live_elements = 0;
  std::int64_t live_limit = 0;     ///< ScheduleLimits::live_elements, or what stands for it
  std::int64_t pair_elements = 0;  ///< the largest two units gathered for uses behind one another
  int gathers = 0;                 ///< gathers per micro-batch

  const ScheduleStep& step(int index) const { return steps[static_cast<std::size_t>(index)]; }
  const Window& window(int index) const { return windows[static_cast<std::size_t>(index)]; }
  /// One line per action, for `--plan` and for people.
  std::string dump(const std::vector<std::string>& unit_names) const;
  /// A hash of every action: equal on all ranks.
  std::uint64_t hash() const;
};

struct ScheduleInput {
  std::vector<Use> uses;
  std::vector<UnitSize> units;
  ScheduleLimits limits;
};

/// The prefetch scheduler: a pure function. Units with gathered_bytes == 0 are never gathered. A
/// unit has one window at a time: it stays in its window if it would be gathered again no later
/// than right after its release. Throws zero::Error on a use of an unknown unit.
Schedule make_schedule(const ScheduleInput& input);

}  // namespace zero
