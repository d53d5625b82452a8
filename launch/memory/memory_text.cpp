// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#include "launch/memory/memory_text.h"

#include <fmt/format.h>

#include <algorithm>

#include "launch/process/quantity.h"

namespace zero {

std::string signed_size(std::int64_t bytes) { return (bytes > 0 ? "+" : "") + size_text(bytes); }

std::string class_table(std::string_view head, std::span<const ClassColumn> columns) {
  std::string text;
  const auto row = [&](std::string_view name, const auto& cell) {
    text += fmt::format("\n  {:<13}", name);
    for (const ClassColumn& column : columns) text += fmt::format(" {:>12}", cell(column));
  };
  row(head, [](const ClassColumn& column) { return std::string(column.head); });
  for (const MemoryClass c : all_memory_classes()) {
    const auto bytes = [c](const ClassColumn& column) { return at(column.bytes, c); };
    if (std::ranges::count(columns, 0, bytes) == std::ssize(columns)) continue;
    row(name_of(c), [&](const ClassColumn& column) { return size_text(bytes(column)); });
  }
  row("sum", [](const ClassColumn& column) { return size_text(column.sum); });
  return text;
}

std::string_view unit_of(std::string_view label, const std::vector<std::string>& units) {
  std::string_view found;
  for (const std::string& unit : units) {
    if (unit.size() <= found.size() || !label.starts_with(unit)) continue;
    if (label.size() == unit.size() || label[unit.size()] == '.') found = unit;
  }
  return found;
}

std::string labelled(MemoryClass memory_class, std::string_view label,
                     const std::vector<std::string>& units) {
  const std::string_view unit = unit_of(label, units);
  return fmt::format("{}{}{}{}", name_of(memory_class), label.empty() ? "" : " ", label,
                     unit.empty() ? "" : fmt::format(" (unit {})", unit));
}

}  // namespace zero
