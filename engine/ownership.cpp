// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#include "engine/ownership.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <array>

namespace zero {
namespace {

std::string shape_text(const std::vector<std::int64_t>& shape) {
  return fmt::format("[{}]", fmt::join(shape, ", "));
}

}  // namespace

std::string ownership_table(std::span<const ParameterOwnership> parameters) {
  std::vector<std::array<std::string, 6>> rows{
      {"parameter", "shape", "on this rank", "replicate", "shard", "tensor"}};
  for (const ParameterOwnership& p : parameters) {
    rows.push_back({p.name, shape_text(p.logical_shape), shape_text(p.local_shape), p.replicate,
                    p.shard, p.tensor});
  }
  std::array<std::size_t, 6> widths{};
  for (const auto& row : rows) {
    for (std::size_t i = 0; i < row.size(); ++i) widths[i] = std::max(widths[i], row[i].size());
  }
  std::string table;
  for (const auto& row : rows) {
    std::string line;
    for (std::size_t i = 0; i < row.size(); ++i) line += fmt::format("{:{}}  ", row[i], widths[i]);
    table += line.substr(0, line.find_last_not_of(' ') + 1) + '\n';
  }
  return table;
}

}  // namespace zero
