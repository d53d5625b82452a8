// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#include "engine/graph_capture.h"

#include <functional>

#include "engine/unit.h"

namespace zero {

void GraphCapture::repeat(const Place& place, Unit& unit, Phase phase, const Stream::Work& body) {
  const bool has_gradients = phase != Phase::forward;
  Graph& graph = graphs_[place];
  if (graph.name.empty())
    graph.name = fmt::format("{} {}", unit.name, has_gradients ? "backward" : "forward");
  std::vector<char> none;
  std::vector<char>& requested = has_gradients ? unit.requested : none;
  if (graph.before != requested) {
    graph.kept = nullptr;
    graph.before = requested;
  }
  bool called = false;
  const auto noted = [&] {
    called = true;
    requested = graph.before;  // the stream may call the body twice
    body();
  };
  device_.compute().repeat(graph.kept, graph.name, check_, std::ref(noted));
  (called ? graph.after : requested) = called ? requested : graph.after;
}

KeptPasses GraphCapture::captured() const {
  KeptPasses all;
  for (const auto& [place, graph] : graphs_) {
    if (!graph.kept) continue;
    if (!graph.kept->refusal().empty() && all.refused++ == 0) all.refusal = graph.kept->refusal();
    if (graph.kept->pieces() == 0) continue;
    ++all.passes;
    all.pieces += graph.kept->pieces();
  }
  return all;
}

}  // namespace zero
