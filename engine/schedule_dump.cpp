// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>
#include <xxhash.h>

#include <iterator>

#include "engine/schedule.h"

namespace zero {
namespace {

std::string describe(const Window& window, const std::vector<std::string>& units) {
  return fmt::format("{} [{}, +{})", units.at(static_cast<std::size_t>(window.unit)), window.offset,
                     window.bytes);
}

}  // namespace

std::string Schedule::dump(const std::vector<std::string>& unit_names) const {
  std::string text;
  const auto out = std::back_inserter(text);
  const auto gather = [&](int w) {
    fmt::format_to(out, "  gather  {}\n", describe(window(w), unit_names));
  };
  fmt::format_to(out, "micro-batch begins\n");
  for (const int w : begin) gather(w);
  for (std::size_t i = 0; i < steps.size(); ++i) {
    const ScheduleStep& step = steps[i];
    const std::string& unit = unit_names.at(static_cast<std::size_t>(step.use.unit.index));
    fmt::format_to(out, "step {}: {} {}\n", i, name_of(step.use.phase), unit);
    for (const int w : step.gathers) gather(w);
    if (step.parameters >= 0)
      fmt::format_to(out, "  wait    parameters {}\n",
                     describe(window(step.parameters), unit_names));
    if (step.gradients >= 0)
      fmt::format_to(out, "  write   gradients {}{}\n",
                     describe(window(step.gradients), unit_names),
                     step.first_gradient ? "" : " (adds)");
    if (step.release) fmt::format_to(out, "  release {}\n", unit);
    if (step.last_gradient) fmt::format_to(out, "  reduce  {}\n", unit);
  }
  fmt::format_to(out, "arena {} bytes, at most {} elements live, {} gathers a micro-batch\n",
                 arena_bytes, peak_live_elements, gathers);
  return text;
}

std::uint64_t Schedule::hash() const {
  std::vector<std::string> names;  // every window's unit has a step
  for (const ScheduleStep& step : steps) {
    for (auto unit = static_cast<int>(names.size()); unit <= step.use.unit.index; ++unit)
      names.push_back(fmt::format("{}", unit));
  }
  const std::string text = dump(names);
  return XXH3_64bits(text.data(), text.size());
}

}  // namespace zero
