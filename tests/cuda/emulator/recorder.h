// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

#include "tests/cuda/emulator/tracker.h"
#include "tests/cuda/emulator/work_graph.h"

namespace zero::cuda::emulated {

/// Writes down the graph of what streams and host threads do. Functions are called under the
/// machine's lock, by the host thread that makes the call.
class Recorder {
 public:
  Recorder(ByteRange device, ByteRange pinned);
  Recorder(const Recorder&) = delete;
  Recorder& operator=(const Recorder&) = delete;

  /// From here on the calling thread is noted, too.
  void attend();
  /// What the calling thread, what it makes and what it does are called: "rank 3".
  void name_thread(const std::string& name);
  /// A stream that the calling thread makes; its chain.
  std::size_t add_stream(std::int64_t number, int priority);
  /// Work for a stream, queued by the calling thread; its node.
  std::int64_t queue(std::size_t stream, WorkGraph::Kind kind, const std::string& name,
                     std::int64_t awaited = WorkGraph::kNone);
  /// The calling thread has waited for a node.
  void join(std::int64_t node);
  /// Whether the calling thread has, directly or by way of others.
  bool has_joined(std::int64_t node);

  void start(std::int64_t node);
  void finish(std::int64_t node, const AccessSet& accesses);
  Tracker item_tracker() const { return {device_, pinned_}; }

  /// From now on these bytes are called `name`.
  void add_memory(const void* data, std::size_t bytes, const std::string& name);
  /// To give memory back is to write it: nothing may be using it.
  void free_memory(const void* data, std::size_t bytes, const std::string& call);

  const WorkGraph& graph() const { return graph_; }

 private:
  struct HostThread;
  static HostThread& here();
  HostThread& attended();
  /// What host code did since the thread's last call, as a node of its own.
  void close_host(HostThread& host, const std::string& name);
  std::int64_t append(WorkGraph::Node node);

  ByteRange device_;
  ByteRange pinned_;
  std::uint64_t session_;
  WorkGraph graph_;
  Clocks clocks_;
  std::vector<std::int64_t> ends_;  // the last node of each chain
  std::int64_t ran_ = 0;
};

}  // namespace zero::cuda::emulated
