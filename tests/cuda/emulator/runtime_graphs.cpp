// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <utility>

#include "tests/cuda/emulator/runtime.h"

// Work that a stream captures as a graph, and graphs that are launched.
namespace zero::cuda::emulated {
namespace {

/// What a thread must not call while it captures, because it may wait for the device or change what
/// others do there (cudaThreadExchangeStreamCaptureMode has "potentially unsafe").
constexpr std::array<std::string_view, 6> kUnsafe{"cudaMalloc",           "cudaFree",
                                                  "cudaMallocHost",       "cudaDeviceSynchronize",
                                                  "cudaEventSynchronize", "cudaEventQuery"};

}  // namespace

cudaError_t Runtime::refuse_unsafe(std::string_view function) {
  const Lock lock(mutex_);
  return refused_here(function);
}

cudaError_t Runtime::refused_here(std::string_view function) {
  if (captures_ == 0 || std::ranges::find(kUnsafe, function) == kUnsafe.end()) return cudaSuccess;
  for (const auto& [handle, queue] : streams_) {
    if (queue->capture == nullptr || queue->capture->thread != std::this_thread::get_id()) continue;
    return invalidate(*queue, cudaErrorStreamCaptureUnsupported);
  }
  return cudaSuccess;
}

cudaError_t Runtime::invalidate(Queue& queue, cudaError_t error) {
  if (!std::exchange(queue.capture->valid, false)) return cudaErrorStreamCaptureInvalidated;
  return error;
}

cudaError_t Runtime::begin_capture(cudaStream_t stream) {
  const Lock lock(mutex_);
  Queue* const queue = find(stream);
  if (queue == nullptr) return cudaErrorInvalidResourceHandle;
  if (queue->capture != nullptr) return invalidate(*queue, cudaErrorIllegalState);
  queue->capture = std::make_unique<Capture>();
  ++captures_;
  return cudaSuccess;
}

cudaError_t Runtime::end_capture(cudaStream_t stream, cudaGraph_t* graph) {
  const Lock lock(mutex_);
  *graph = nullptr;
  Queue* const queue = find(stream);
  if (queue == nullptr) return cudaErrorInvalidResourceHandle;
  if (queue->capture == nullptr) return cudaErrorIllegalState;
  if (queue->capture->thread != std::this_thread::get_id()) {
    return invalidate(*queue, cudaErrorStreamCaptureWrongThread);
  }
  --captures_;
  const std::unique_ptr<Capture> capture = std::move(queue->capture);
  if (!capture->valid) return cudaErrorStreamCaptureInvalidated;
  auto made = std::make_shared<const Graph>(std::move(capture->graph));
  *graph = reinterpret_cast<cudaGraph_t>(const_cast<Graph*>(made.get()));
  graphs_.emplace(*graph, std::move(made));
  return cudaSuccess;
}

/// Of a stream that captures: what it is given becomes part of its graph.
cudaError_t Runtime::add_to_capture(Queue& queue, const std::string& name, QueuedItem item) {
  if (!queue.capture->valid) return cudaErrorStreamCaptureInvalidated;
  if (item.ready) return invalidate(queue, cudaErrorStreamCaptureUnsupported);
  queue.capture->graph.emplace_back(name, std::move(item));
  return cudaSuccess;
}

cudaError_t Runtime::graph_nodes(cudaGraph_t graph, std::size_t* count) {
  const Lock lock(mutex_);
  const auto found = graphs_.find(graph);
  if (found == graphs_.end()) return cudaErrorInvalidValue;
  *count = found->second->size();
  return cudaSuccess;
}

/// The executable graph keeps what it runs by itself.
cudaError_t Runtime::instantiate(cudaGraph_t graph, cudaGraphExec_t* executable) {
  const Lock lock(mutex_);
  const auto found = graphs_.find(graph);
  if (found == graphs_.end()) return cudaErrorInvalidValue;
  auto made = std::make_shared<const Graph>(*found->second);
  *executable = reinterpret_cast<cudaGraphExec_t>(const_cast<Graph*>(made.get()));
  executables_.emplace(*executable, std::move(made));
  return cudaSuccess;
}

cudaError_t Runtime::destroy_graph(cudaGraph_t graph) {
  const Lock lock(mutex_);
  return graphs_.erase(graph) == 1 ? cudaSuccess : cudaErrorInvalidValue;
}

cudaError_t Runtime::destroy_executable(cudaGraphExec_t executable) {
  const Lock lock(mutex_);
  return executables_.erase(executable) == 1 ? cudaSuccess : cudaErrorInvalidValue;
}

cudaError_t Runtime::upload(cudaGraphExec_t executable, cudaStream_t stream) {
  const Lock lock(mutex_);
  const bool known = executables_.contains(executable) && find(stream) != nullptr;
  return known ? cudaSuccess : cudaErrorInvalidResourceHandle;
}

/// Its items come one behind another, as they were captured from one stream.
cudaError_t Runtime::launch(cudaGraphExec_t executable, cudaStream_t stream) {
  Lock lock(mutex_);
  Queue* const queue = find(stream);
  const auto found = executables_.find(executable);
  if (queue == nullptr || found == executables_.end()) return cudaErrorInvalidResourceHandle;
  if (queue->capture != nullptr) return invalidate(*queue, cudaErrorStreamCaptureUnsupported);
  for (const auto& [name, item] : *found->second) push(*queue, name, item);
  choose(lock);
  return cudaSuccess;
}

}  // namespace zero::cuda::emulated
