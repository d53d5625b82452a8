// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string_view>

namespace zero {

/// Is told of a run's phases as they begin, on the rank's host thread: "start", "load", "forward",
/// "backward", "update", "validation", "save", "between steps", "end"; of zero_generate "start",
/// "prompts" (of which some may still be written), "load", and in a step "draft", "prefill" or
/// "decode", "between steps", where it prints, then "end".
class PhaseListener {
 public:
  virtual ~PhaseListener() = default;
  /// `step`: the optimizer step, or pass of the model, under way, or the last one done between
  /// steps; -1 before the first. "forward" and "backward" are told of anew for each micro-batch.
  /// What this throws ends the run.
  virtual void phase(std::int64_t step, std::string_view name) noexcept(false) = 0;
};

}  // namespace zero
