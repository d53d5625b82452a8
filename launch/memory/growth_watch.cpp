// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#include "launch/memory/growth_watch.h"

#include <fmt/format.h>

#include <utility>

#include "launch/telemetry/output.h"

namespace zero {

std::string_view unit_of(std::string_view label, const std::vector<std::string>& units) {
  std::string_view found;
  for (const std::string& unit : units) {
    if (unit.size() <= found.size() || !label.starts_with(unit)) continue;
    if (label.size() == unit.size() || label[unit.size()] == '.') found = unit;
  }
  return found;
}

std::string labelled(MemoryClass memory_class, std::string_view label, std::string_view unit) {
  return fmt::format("{}{}{}{}", name_of(memory_class), label.empty() ? "" : " ", label,
                     unit.empty() ? "" : fmt::format(" (unit {})", unit));
}

MemoryMoment GrowthWatch::moment(std::int64_t step) const {
  return {.label = fmt::format("step {}", step),
          .seconds = 0,
          .memory = device_.ledger().snapshot(),
          .reserved = 0,
          .device = {}};
}

std::optional<std::string> GrowthWatch::after_step(std::int64_t step, std::int64_t total) {
  if (++steps_ < kSteady) return std::nullopt;
  if (!steady_) {
    steady_ = moment(step);
    return std::nullopt;
  }
  const std::int64_t grown = total - steady_->memory.total;
  if (grown <= most_) return std::nullopt;
  MemoryMoment now = moment(step);
  const auto text = [](std::int64_t bytes) { return bytes_text(static_cast<double>(bytes)); };
  const std::vector<MemoryGrowth> labels = MemoryMonitor::compare(*steady_, now);
  std::string line = fmt::format("memory has grown by {} since {}, to {}; run.memory_growth is {}",
                                 text(grown), steady_->label, text(total), text(most_));
  if (!labels.empty()) {
    const MemoryGrowth& most = labels.front();
    line += fmt::format(": most of it {}, +{}",
                        labelled(most.memory_class, most.label, unit_of(most.label, units_)),
                        text(most.bytes));
  }
  steady_ = std::move(now);
  return line;
}

}  // namespace zero
