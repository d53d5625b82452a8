// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "model/unit_listener.h"

namespace zero {

/// Is told of a run's phases as they begin, on the rank's host thread: "start" (of which RunFaults
/// tells), "load", "forward", "backward", "update", "validation", "save", "between steps", "end";
/// of zero_generate "start", "prompts" (of which some may still be written), "load", and in a step
/// "draft", "prefill" or "decode", "between steps", where it prints, then "end".
class PhaseListener {
 public:
  virtual ~PhaseListener() = default;
  /// `step`: the optimizer step, or pass of the model, under way, or the last one done between
  /// steps; -1 before the first. "forward" and "backward" are told of anew for each micro-batch.
  /// What this throws ends the run.
  virtual void phase(std::int64_t step, std::string_view name) noexcept(false) = 0;
};

/// Tells a run's phase listeners of its phases behind "start". Hears of the model's units, by which
/// it tells backward from forward. Used by the rank's host thread.
class RunPhases final : public UnitsOnlyListener {
 public:
  /// The listeners must outlive this object.
  explicit RunPhases(std::vector<PhaseListener*> listeners) : listeners_(std::move(listeners)) {}

  /// A phase begins.
  void at(std::int64_t step, std::string_view name) {
    step_ = step;
    name_ = name;
    for (PhaseListener* each : listeners_) each->phase(step, name);
  }
  const std::string& name() const { return name_; }  ///< of the newest phase

  // Units are computed in validation too, which is a phase of its own.
  void unit(std::string_view /*name*/, Phase phase) override {
    if (name_ != "forward" && name_ != "backward") return;
    // The head's lease is both; what follows is backward.
    const std::string_view now = phase == Phase::forward ? "forward" : "backward";
    if (now != name_) at(step_, now);
  }

 private:
  std::vector<PhaseListener*> listeners_;
  std::int64_t step_ = -1;
  std::string name_ = "start";
};

}  // namespace zero
