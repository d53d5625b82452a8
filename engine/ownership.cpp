// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#include "engine/ownership.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <array>

#include "base/message_text.h"
#include "collectives/mesh.h"
#include "engine/unit.h"

namespace zero {
namespace {

std::string copies_text(int ranks) {
  return ranks == 1 ? std::string("1 rank") : fmt::format("{} copies", ranks);
}

/// The states of a parameter that are cut over the shard axis.
std::string sharded_states(const Unit& unit, int index) {
  const Segment& segment = unit.segment_of(index);
  const FlatLayout& layout = segment.layout;
  std::vector<std::string_view> cut;
  if (segment.trainable && segment.master.count() < layout.padded()) cut.emplace_back("states");
  if (segment.trainable && segment.gradient.count() < layout.padded())
    cut.emplace_back("gradients");
  const bool in_tail = layout.tail() > 0 && unit.placement(index).begin >= layout.tail_begin();
  if (segment.full.empty() && !in_tail) cut.emplace_back("parameters");
  return fmt::format("{}", fmt::join(cut, ", "));
}

}  // namespace

std::vector<ParameterOwnership> ownership_of(std::span<const Unit> units, const MeshShape& mesh) {
  std::vector<ParameterOwnership> list;
  for (const Unit& unit : units) {
    for (int i = 0; i < unit.parameters(); ++i) {
      const ParameterSpec& spec = unit.spec(i);
      list.push_back({unit.full_name(i), spec.logical_shape(), spec.shape,
                      copies_text(mesh.replicate), copies_text(mesh.shard),
                      copies_text(mesh.tensor)});
      const std::string cut = sharded_states(unit, i);
      if (mesh.shard > 1 && !cut.empty())
        list.back().shard = fmt::format("{} over {}", cut, mesh.shard);
      if (!spec.slice) continue;
      const bool copies = !unit.shared_ranges[static_cast<std::size_t>(i)].empty();
      list.back().tensor = fmt::format("along {} over {}{}", spec.slice->dimension, mesh.tensor,
                                       copies ? ", some in copies" : "");
    }
  }
  return list;
}

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
