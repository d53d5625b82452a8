// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "device/memory_ledger.h"

namespace zero {

class StateHome;
class StepProgress;
struct Schedule;
struct Unit;

/// Memory of one unit whose values later work of the optimizer step, or the next step, reads.
struct LiveTensor {
  MemoryClass memory_class = MemoryClass::parameters;
  std::string_view unit;  ///< lives as long as the engine
  /// "parameters", "small parameters" (whole at stage 3), "master", "moment", "moment scale",
  /// "gradient", "partial sum", "gathered parameters", "gradient window"; static.
  std::string_view what;
  std::int64_t bytes = 0;
};

/// Those of `units` where `progress` is in the schedule of training, as the host has called: a
/// gather that is issued counts, so does a reduction's result. Between leases a window is alive if
/// it is gathered already and read later; in a lease also if it is read or written by this one.
/// Receive slices and other scratch are alive while work runs and are not listed, nor are values of
/// `home` that are in a file, and windows.
std::vector<LiveTensor> live_tensors(std::span<const Unit> units, const Schedule& schedule,
                                     const StepProgress& progress, const StateHome& home);

}  // namespace zero
