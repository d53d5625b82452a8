// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#include "engine/graph_capture.h"

#include <functional>

#include "engine/unit.h"

namespace zero {

void GraphCapture::repeat(const Key& key, Unit& unit, Phase phase, const Stream::Work& body) {
  const bool has_gradients = writes_gradients(phase);
  if (phase == Phase::both)
    phase = Phase::backward;  // of a head, whose forward is no pass of its own
  Graph& graph = graphs_[key];
  if (graph.name.empty()) graph.name = fmt::format("{} {}", unit.name, name_of(phase));
  std::vector<char> none;
  std::vector<char>& requested = has_gradients ? unit.requested : none;
  if (graph.before != requested) {
    graph.captured = nullptr;
    graph.before = requested;
  }
  bool called = false;
  const auto noted = [&] {
    called = true;
    requested = graph.before;  // the stream may call the body twice
    body();
  };
  device_.compute().repeat(graph.captured, graph.name, check_, std::ref(noted));
  (called ? graph.after : requested) = called ? requested : graph.after;
}

CaptureCounts GraphCapture::captured() const {
  CaptureCounts all;
  for (const auto& [key, graph] : graphs_) {
    if (!graph.captured) continue;
    if (!graph.captured->refusal().empty() && all.refused++ == 0)
      all.refusal = graph.captured->refusal();
    if (graph.captured->nodes() == 0) continue;
    ++all.graphs;
    all.nodes += graph.captured->nodes();
  }
  return all;
}

}  // namespace zero
