// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "tests/cuda/emulator/access_set.h"

namespace zero::cuda::emulated {

/// What streams were given and what host threads did between their calls, and in which order CUDA
/// promises that it happens: nothing of the order in which it happened to run. Nodes stand behind
/// those that come before them.
struct WorkGraph {
  static constexpr std::int64_t kNone = -1;

  enum class Kind : std::uint8_t { work, record, wait, host };
  struct Node {
    Kind kind = Kind::work;
    std::string name;
    std::size_t chain = 0;          ///< the stream, or the host thread
    std::int32_t position = 0;      ///< in its chain, from 1
    std::int64_t previous = kNone;  ///< in its chain
    std::int64_t host = kNone;      ///< what the thread that queued it had done before
    std::int64_t awaited = kNone;   ///< the record of a wait; what a thread has waited for
    std::int64_t order = kNone;     ///< in which it ran, among all
    std::vector<ByteRange> reads;
    std::vector<ByteRange> writes;
  };
  struct Memory {
    ByteRange bytes;
    std::string name;
    std::int64_t since = 0;  ///< what ran earlier knew it by another name
  };

  std::vector<Node> nodes;
  std::vector<std::string> chains;  ///< their names
  std::vector<Memory> memory;       ///< every name that memory has had, the latest last

  const Node& node(std::int64_t number) const { return nodes[static_cast<std::size_t>(number)]; }
};

/// For every node of a graph, how far into each chain all is done before it.
class Clocks {
 public:
  Clocks() = default;
  /// Of the whole graph, but for the order that node `dropped` (a wait) brings.
  explicit Clocks(const WorkGraph& graph, std::int64_t dropped = WorkGraph::kNone);

  /// Of the graph's last node; there are clocks of all before it.
  void add_last(const WorkGraph& graph);
  /// Whether `first` is done when `second` begins.
  bool ordered(const WorkGraph& graph, std::int64_t first, std::int64_t second) const;
  /// By chain, how far all is done before a node; fewer chains than the graph has in the end.
  const std::vector<std::int32_t>& of(std::int64_t node) const {
    return clocks_[static_cast<std::size_t>(node)];
  }

 private:
  using Clock = std::vector<std::int32_t>;
  void add(const WorkGraph& graph, const WorkGraph::Node& node, std::int64_t awaited);

  std::vector<Clock> clocks_;
};

}  // namespace zero::cuda::emulated
