// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#include "tests/cuda/emulator/dependences.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <utility>

namespace zero::cuda::emulated {
namespace {

/// Who has touched each byte, while the nodes go by in the order in which they ran.
class Shadow {
 public:
  explicit Shadow(const WorkGraph& graph) : graph_(graph) {}

  void read(std::int64_t node, ByteRange bytes);
  void write(std::int64_t node, ByteRange bytes);
  /// Lets all nodes go by.
  void run();
  std::vector<Dependence> found() const;
  std::vector<Unwritten> unwritten() const;

 private:
  /// Bytes with one history.
  struct Span {
    std::uintptr_t end = 0;
    std::int64_t written = WorkGraph::kNone;
    std::vector<std::int64_t> read;  // after that write; of each chain the last
  };
  using Spans = std::map<std::uintptr_t, Span>;

  void split(std::uintptr_t at);
  /// Calls visit(range, span) for spans that cover `bytes` and nothing else.
  template <class Visit>
  void visit(ByteRange bytes, const Visit& visit);
  void add(std::int64_t first, std::int64_t second, ByteRange bytes, Access was, Access is);

  const WorkGraph& graph_;
  Spans spans_;
  std::map<std::pair<std::int64_t, std::int64_t>, Dependence> found_;
  std::map<std::int64_t, ByteRange> unwritten_;
};

void Shadow::split(std::uintptr_t at) {
  auto next = spans_.upper_bound(at);
  if (next == spans_.begin()) return;
  const auto here = std::prev(next);
  if (here->first == at || here->second.end <= at) return;
  spans_.emplace_hint(next, at, here->second);
  here->second.end = at;
}

template <class Visit>
void Shadow::visit(ByteRange bytes, const Visit& visit) {
  split(bytes.begin);
  split(bytes.end);
  std::uintptr_t at = bytes.begin;
  for (auto here = spans_.lower_bound(at); at < bytes.end; ++here) {
    if (here == spans_.end() || here->first > at) {  // nobody has touched what lies before it
      const std::uintptr_t end =
          here == spans_.end() ? bytes.end : std::min(here->first, bytes.end);
      here = spans_.emplace_hint(here, at, Span{.end = end, .read = {}});
    }
    visit(ByteRange{at, here->second.end}, here->second);
    at = here->second.end;
  }
}

void Shadow::add(std::int64_t first, std::int64_t second, ByteRange bytes, Access was, Access is) {
  if (first == WorkGraph::kNone || first == second) return;
  if (graph_.node(first).chain == graph_.node(second).chain) return;
  found_.try_emplace({first, second}, Dependence{first, second, bytes, was, is});
}

void Shadow::read(std::int64_t node, ByteRange bytes) {
  const std::size_t chain = graph_.node(node).chain;
  visit(bytes, [&](ByteRange range, Span& span) {
    add(span.written, node, range, Access::write, Access::read);
    if (span.written == WorkGraph::kNone) unwritten_.try_emplace(node, range);
    const auto same = std::ranges::find_if(
        span.read, [&](std::int64_t other) { return graph_.node(other).chain == chain; });
    if (same == span.read.end()) {
      span.read.push_back(node);
    } else {
      *same = node;
    }
  });
}

void Shadow::write(std::int64_t node, ByteRange bytes) {
  visit(bytes, [&](ByteRange range, Span& span) {
    add(span.written, node, range, Access::write, Access::write);
    for (const std::int64_t reader : span.read) {
      add(reader, node, range, Access::read, Access::write);
    }
    span.written = node;
    span.read.clear();
  });
}

void Shadow::run() {
  std::vector<std::int64_t> ran;
  for (std::int64_t i = 0; i < std::ssize(graph_.nodes); ++i) {
    if (graph_.node(i).order != WorkGraph::kNone) ran.push_back(i);
  }
  std::ranges::sort(ran, {}, [&](std::int64_t i) { return graph_.node(i).order; });
  for (const std::int64_t i : ran) {
    for (const ByteRange& bytes : graph_.node(i).reads) read(i, bytes);
    for (const ByteRange& bytes : graph_.node(i).writes) write(i, bytes);
  }
}

std::vector<Dependence> Shadow::found() const {
  std::vector<Dependence> all;
  for (const auto& [pair, dependence] : found_) all.push_back(dependence);
  return all;
}

std::vector<Unwritten> Shadow::unwritten() const {
  std::vector<Unwritten> all;
  for (const auto& [node, bytes] : unwritten_) all.push_back({node, bytes});
  return all;
}

/// What `bytes` are called when `node` runs.
std::string place(const WorkGraph& graph, ByteRange bytes, std::int64_t node) {
  const auto holds = [&](const WorkGraph::Memory& one) {
    return one.bytes.holds(bytes.begin) && one.since <= graph.node(node).order;
  };
  const auto found = std::find_if(graph.memory.rbegin(), graph.memory.rend(), holds);
  if (found == graph.memory.rend()) return "memory of nobody";
  return fmt::format("bytes {} to {} of {}", bytes.begin - found->bytes.begin,
                     bytes.end - found->bytes.begin, found->name);
}

std::string actor(const WorkGraph& graph, std::int64_t number, Access access) {
  const WorkGraph::Node& node = graph.node(number);
  return fmt::format("\"{}\" (number {} of {}) {}", node.name, node.position,
                     graph.chains[node.chain], access == Access::read ? "reads" : "writes");
}

/// Whether two sets of clocks order all that touches memory alike.
class SameOrder {
 public:
  explicit SameOrder(const WorkGraph& graph) : graph_(graph), touching_(graph.chains.size()) {
    for (const WorkGraph::Node& node : graph.nodes) {
      auto& chain = touching_[node.chain];
      const std::int32_t before = chain.empty() ? 0 : chain.back();
      chain.push_back(touches(node) ? node.position : before);
    }
  }

  bool operator()(const Clocks& some, const Clocks& others) const {
    for (std::int64_t i = 0; i < std::ssize(graph_.nodes); ++i) {
      if (touches(graph_.node(i)) && !alike(some.of(i), others.of(i))) return false;
    }
    return true;
  }

 private:
  static bool touches(const WorkGraph::Node& node) {
    return !node.reads.empty() || !node.writes.empty();
  }
  /// Up to nodes that touch nothing.
  bool alike(const std::vector<std::int32_t>& some, const std::vector<std::int32_t>& others) const {
    for (std::size_t chain = 0; chain < some.size(); ++chain) {
      if (last(chain, some[chain]) != last(chain, others[chain])) return false;
    }
    return true;
  }
  std::int32_t last(std::size_t chain, std::int32_t position) const {
    return position == 0 ? 0 : touching_[chain][static_cast<std::size_t>(position - 1)];
  }

  const WorkGraph& graph_;
  std::vector<std::vector<std::int32_t>> touching_;  // by chain and position: the last that does
};

}  // namespace

std::vector<Dependence> dependences(const WorkGraph& graph) {
  Shadow shadow(graph);
  shadow.run();
  return shadow.found();
}

std::vector<Unwritten> unwritten(const WorkGraph& graph) {
  Shadow shadow(graph);
  shadow.run();
  return shadow.unwritten();
}

std::string describe(const WorkGraph& graph, const Unwritten& read) {
  return fmt::format("{} {}, which nothing has written", actor(graph, read.node, Access::read),
                     place(graph, read.bytes, read.node));
}

std::vector<Dependence> unordered(const WorkGraph& graph, const Clocks& clocks,
                                  const std::vector<Dependence>& all) {
  std::vector<Dependence> found;
  std::ranges::copy_if(all, std::back_inserter(found), [&](const Dependence& one) {
    return !clocks.ordered(graph, one.first, one.second);
  });
  return found;
}

std::string describe(const WorkGraph& graph, const Dependence& dependence) {
  return fmt::format("{} and {} {}; nothing orders them",
                     actor(graph, dependence.first, dependence.first_access),
                     actor(graph, dependence.second, dependence.second_access),
                     place(graph, dependence.bytes, dependence.first));
}

WaitUses wait_uses(const WorkGraph& graph, const std::vector<Dependence>& all) {
  WaitUses uses;
  const Clocks full(graph);
  const SameOrder same_order(graph);
  for (std::int64_t i = 0; i < std::ssize(graph.nodes); ++i) {
    const WorkGraph::Node& node = graph.node(i);
    if (node.kind != WorkGraph::Kind::wait || node.awaited == WorkGraph::kNone) continue;
    const Clocks without(graph, i);
    const bool ordered = std::ranges::all_of(
        all, [&](const Dependence& one) { return without.ordered(graph, one.first, one.second); });
    if (!ordered) {
      uses.needed.push_back(i);
    } else if (same_order(full, without)) {
      uses.implied.push_back(i);
    } else {
      uses.idle.push_back(i);
    }
  }
  return uses;
}

}  // namespace zero::cuda::emulated
