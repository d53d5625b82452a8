// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#include "launch/telemetry/restart_text.h"

#include <array>
#include <optional>

#include "base/message_text.h"
#include "files/file_system.h"

namespace zero {
namespace {

constexpr std::size_t kMostCause = 500;

struct Counter {
  const char* variable;
  const char* by;
};
constexpr std::array kCounters{Counter{"TORCHELASTIC_RESTART_COUNT", "torchrun"},
                               Counter{"SLURM_RESTART_COUNT", "Slurm"}};

/// The number and the cause that retry.sh says, if it does so of the run in `folder`:
/// "CAUSE<tab>FOLDER".
std::optional<std::string> cause_of_run_in(const std::string& folder, const std::string& told) {
  const std::size_t tab = told.find('\t');
  if (tab == std::string::npos) return std::nullopt;
  if (!files::same_place(told.substr(tab + 1), folder)) return std::nullopt;
  return told.substr(0, tab);
}

}  // namespace

std::string restart_text(const Environment& environment, const std::string& folder) {
  if (const auto told = environment("ZERO_RESTART")) {
    const auto cause = cause_of_run_in(folder, *told);
    if (cause) return "restart " + printable_line(*cause, kMostCause);
  }
  for (const auto& [variable, by] : kCounters) {
    const auto count = environment(variable);
    if (!count || *count == "0") continue;
    return std::string("restart ") + printable_line(*count, kMostCause) + " by " + by;
  }
  return "";
}

}  // namespace zero
