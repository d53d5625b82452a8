// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#include "launch/telemetry/restart_text.h"

#include <array>

#include "base/message_text.h"

namespace zero {
namespace {

constexpr std::size_t kMostCause = 500;

struct Counter {
  const char* variable;
  const char* by;
};
constexpr std::array kCounters{Counter{"TORCHELASTIC_RESTART_COUNT", "torchrun"},
                               Counter{"SLURM_RESTART_COUNT", "Slurm"}};

}  // namespace

std::string restart_text(const Environment& environment) {
  if (const auto cause = environment("ZERO_RESTART")) {
    return "restart " + printable_line(*cause, kMostCause);
  }
  for (const auto& [variable, by] : kCounters) {
    const auto count = environment(variable);
    if (!count || *count == "0") continue;
    return std::string("restart ") + printable_line(*count, kMostCause) + " by " + by;
  }
  return "";
}

}  // namespace zero
