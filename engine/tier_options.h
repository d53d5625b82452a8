// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include "tiers/tier.h"

namespace zero {

/// How values of a file, or of host memory, pass through memory of the device to their update.
struct StateWindowOptions {
  /// States are cut into windows at multiples of this many elements: whole blocks of the file in
  /// every format of a state.
  static constexpr std::int64_t kGrain = 4096;

  int buffers = 4;  ///< windows, at least 1
  /// Most elements of a window, each with all its states: at least kGrain, rounded down to whole
  /// grains.
  std::int64_t buffer_elements = std::int64_t{1} << 20;
  bool pipeline_read = true;   ///< windows are read ahead of the update
  bool pipeline_write = true;  ///< a window is written while the next one is updated
};

/// Where the model states of an engine live that need not be in the memory of its device. Changes
/// no bit of a result, and no checkpoint: a run may resume with other tiers.
struct TierOptions {
  /// Master values and moments. (The scales of 8-bit moments, 0.5 % of such states, stay in memory;
  /// fp32 master values that are the compute copy itself are where `parameters` has them.)
  /// Tier::host is Tier::device on a CPU.
  Tier optimizer = Tier::device;
  /// The most of those states that `optimizer` holds, as a share, 0 to 1: of whole units, each that
  /// still fits, in the order of updates. The others stay in memory.
  double optimizer_ratio = 1;
  StateWindowOptions windows{};  ///< of Tier::file and Tier::host
  /// Shards of parameters at stage 3, likewise; units that stay whole stay in memory.
  Tier parameters = Tier::device;
  /// Elements of a rank's shards that stay in memory all the same: of whole units, each that still
  /// fits, in the order of updates.
  std::int64_t parameters_in_memory = 0;
  /// Shards of units on their way to a gather, at least 1 (1: none is read ahead).
  int fetch_buffers = 2;
  TierFileOptions file{};  ///< of Tier::file
};

/// Whether a rank has a file: one, for all that lives in Tier::file.
constexpr bool uses_file(const TierOptions& options) {
  return options.optimizer == Tier::file || options.parameters == Tier::file;
}

/// Whether values of a device with memory of its own live in pinned host memory.
constexpr bool uses_host(const TierOptions& options) {
  return options.optimizer == Tier::host || options.parameters == Tier::host;
}

}  // namespace zero
