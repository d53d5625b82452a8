// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#include "tests/cuda/emulator/work_graph.h"

#include <algorithm>

namespace zero::cuda::emulated {

Clocks::Clocks(const WorkGraph& graph, std::int64_t dropped) {
  clocks_.reserve(graph.nodes.size());
  for (const WorkGraph::Node& node : graph.nodes) {
    const bool left_out = std::ssize(clocks_) == dropped;
    add(graph, node, left_out ? WorkGraph::kNone : node.awaited);
  }
}

void Clocks::add_last(const WorkGraph& graph) {
  add(graph, graph.nodes.back(), graph.nodes.back().awaited);
}

void Clocks::add(const WorkGraph& graph, const WorkGraph::Node& node, std::int64_t awaited) {
  Clock clock(graph.chains.size());
  for (const std::int64_t before : {node.previous, node.host, awaited}) {
    if (before == WorkGraph::kNone) continue;
    const Clock& other = clocks_[static_cast<std::size_t>(before)];
    for (std::size_t chain = 0; chain < other.size(); ++chain) {
      clock[chain] = std::max(clock[chain], other[chain]);
    }
  }
  clock[node.chain] = node.position;
  clocks_.push_back(std::move(clock));
}

bool Clocks::ordered(const WorkGraph& graph, std::int64_t first, std::int64_t second) const {
  const WorkGraph::Node& node = graph.node(first);
  const Clock& clock = clocks_[static_cast<std::size_t>(second)];
  return node.chain < clock.size() && clock[node.chain] >= node.position;
}

}  // namespace zero::cuda::emulated
