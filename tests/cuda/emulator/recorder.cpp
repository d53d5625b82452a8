// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#include "tests/cuda/emulator/recorder.h"

#include <fmt/format.h>

#include <atomic>
#include <utility>

namespace zero::cuda::emulated {

constinit thread_local Tracker* tracker = nullptr;

struct Recorder::HostThread {
  std::string name = "the host";
  std::uint64_t session = 0;  // of the recorder that it belongs to
  std::size_t chain = 0;
  Tracker own;
};

Recorder::HostThread& Recorder::here() {
  thread_local HostThread host;
  return host;
}

Recorder::Recorder(ByteRange device, ByteRange pinned) : device_(device), pinned_(pinned) {
  static std::atomic<std::uint64_t> sessions{0};
  session_ = ++sessions;
}

Recorder::HostThread& Recorder::attended() {
  HostThread& host = here();
  if (host.session == session_) return host;
  host.session = session_;
  host.chain = graph_.chains.size();
  host.own = {device_, pinned_};
  graph_.chains.push_back(host.name);
  ends_.push_back(WorkGraph::kNone);
  tracker = &host.own;
  return host;
}

void Recorder::attend() { attended(); }

void Recorder::name_thread(const std::string& name) {
  HostThread& host = attended();
  host.name = graph_.chains[host.chain] = name;
}

std::size_t Recorder::add_stream(std::int64_t number, int priority) {
  graph_.chains.push_back(
      fmt::format("{}'s stream {} (priority {})", attended().name, number, priority));
  ends_.push_back(WorkGraph::kNone);
  return graph_.chains.size() - 1;
}

std::int64_t Recorder::append(WorkGraph::Node node) {
  std::int64_t& end = ends_[node.chain];
  node.previous = end;
  node.position = end == WorkGraph::kNone ? 1 : graph_.node(end).position + 1;
  end = std::ssize(graph_.nodes);
  graph_.nodes.push_back(std::move(node));
  clocks_.add_last(graph_);
  return end;
}

void Recorder::close_host(HostThread& host, const std::string& name) {
  if (host.own.accesses().empty()) return;
  WorkGraph::Node node;
  node.kind = WorkGraph::Kind::host;
  node.name = name;
  node.chain = host.chain;
  node.order = ran_++;
  finish(append(std::move(node)), host.own.accesses());
  host.own.accesses().clear();
}

std::int64_t Recorder::queue(std::size_t stream, WorkGraph::Kind kind, const std::string& name,
                             std::int64_t awaited) {
  HostThread& host = attended();
  close_host(host, "host code");
  WorkGraph::Node node;
  node.kind = kind;
  node.name = name;
  node.chain = stream;
  node.host = ends_[host.chain];
  node.awaited = awaited;
  return append(std::move(node));
}

void Recorder::join(std::int64_t node) {
  HostThread& host = attended();
  close_host(host, "host code");
  if (node == WorkGraph::kNone || has_joined(node)) return;
  WorkGraph::Node joined;
  joined.kind = WorkGraph::Kind::host;
  joined.name = "synchronize";
  joined.chain = host.chain;
  joined.awaited = node;
  joined.order = ran_++;
  append(std::move(joined));
}

bool Recorder::has_joined(std::int64_t node) {
  const std::int64_t end = ends_[attended().chain];
  return node == WorkGraph::kNone ||
         (end != WorkGraph::kNone && clocks_.ordered(graph_, node, end));
}

void Recorder::start(std::int64_t node) {
  graph_.nodes[static_cast<std::size_t>(node)].order = ran_++;
}

void Recorder::finish(std::int64_t node, const AccessSet& accesses) {
  graph_.nodes[static_cast<std::size_t>(node)].reads = accesses.ranges(Access::read);
  graph_.nodes[static_cast<std::size_t>(node)].writes = accesses.ranges(Access::write);
}

void Recorder::add_memory(const void* data, std::size_t bytes, const std::string& name) {
  graph_.memory.push_back(
      {range_of(data, bytes), fmt::format("{}'s {}", attended().name, name), ran_});
}

void Recorder::free_memory(const void* data, std::size_t bytes, const std::string& call) {
  HostThread& host = attended();
  close_host(host, "host code");
  host.own.touch(data, bytes, Access::write);
  close_host(host, call);
}

}  // namespace zero::cuda::emulated
