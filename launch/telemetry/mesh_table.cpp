// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#include "launch/telemetry/mesh_table.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <numeric>

#include "collectives/store.h"

namespace zero {
namespace {

constexpr int kRows = 16;  // more are told by their number

/// The hosts of ranks, each once, in order of first appearance.
std::vector<std::string> hosts_of(const std::vector<std::string>& hosts, int first, int count) {
  std::vector<std::string> found;
  for (int rank = first; rank < first + count; ++rank) {
    const std::string& host = hosts.at(static_cast<std::size_t>(rank));
    if (std::ranges::find(found, host) == found.end()) found.push_back(host);
  }
  return found;
}

}  // namespace

MeshTable mesh_table(const MeshShape& shape, const std::vector<std::string>& hosts) {
  MeshTable table;
  if (shape.replicate == 1 && shape.tensor == 1) return table;
  table.text = fmt::format("mesh: replicate {} x shard {} x tensor {}\n", shape.replicate,
                           shape.shard, shape.tensor);
  const int rows = shape.replicate * shape.shard;
  int crossing = 0;
  for (int row = 0; row < rows; ++row) {
    const int first = row * shape.tensor;
    const std::vector<std::string> on = hosts_of(hosts, first, shape.tensor);
    if (on.size() > 1 && crossing++ == 0) {
      table.warnings.push_back(fmt::format(
          "the tensor group of ranks {} to {} is on {} hosts ({}): every layer waits for the link "
          "between them; make mesh.tensor divide the ranks of a host",
          first, first + shape.tensor - 1, on.size(), fmt::join(on, ", ")));
    }
    if (row >= kRows) continue;
    std::vector<int> ranks(static_cast<std::size_t>(shape.tensor));
    std::iota(ranks.begin(), ranks.end(), first);
    table.text +=
        fmt::format("  replicate {:>3}  shard {:>4}  ranks {}  on {}\n", row / shape.shard,
                    row % shape.shard, fmt::join(ranks, " "), fmt::join(on, ", "));
  }
  if (rows > kRows) table.text += fmt::format("  and {} more tensor groups\n", rows - kRows);
  if (crossing > 1) {
    table.warnings.back() += fmt::format(" (and {} more groups)", crossing - 1);
  }
  table.text.pop_back();
  return table;
}

MeshTable mesh_table(Mesh& mesh, Device& device, const std::string& host) {
  return mesh_table(mesh.shape(), exchange(mesh.world(), device, host, "hosts of the mesh"));
}

}  // namespace zero
