// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <chrono>
#include <condition_variable>
#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <random>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

#include "tests/cuda/emulator/device_memory.h"
#include "tests/cuda/emulator/emulator.h"
#include "tests/cuda/emulator/pinned_memory.h"
#include "tests/cuda/emulator/recorder.h"

namespace zero::cuda::emulated {

struct Queue;

struct EventRecord {
  std::int64_t number = 0;
  std::int64_t recorded = 0;     // how often
  std::int64_t completed = 0;    // the latest record that has run
  std::shared_ptr<Queue> queue;  // of the latest record, and its item there
  std::int64_t item = 0;
  std::int64_t node = WorkGraph::kNone;
  std::chrono::steady_clock::time_point time;
  bool timing = false;
};

struct QueuedItem {
  Item::Kind kind = Item::Kind::work;
  std::int64_t logged = 0;
  std::int64_t node = WorkGraph::kNone;  // while it is recorded
  std::function<void()> work;
  std::function<bool()> ready;
  bool opens_memory = true;
  std::shared_ptr<EventRecord> event;  // record, wait
  std::int64_t version = 0;
  std::shared_ptr<Queue> awaited;  // wait: where the event was recorded, and as which item
  std::int64_t awaited_item = 0;
};

/// Work that was captured from one stream, by name.
using Graph = std::vector<std::pair<std::string, QueuedItem>>;

/// What a stream has been given since it captures, by the thread that has it do so.
struct Capture {
  std::thread::id thread = std::this_thread::get_id();
  bool valid = true;
  Graph graph;
};

/// One stream. Items are numbered from 1; `done` of them have run.
struct Queue {
  std::int64_t number = 0;
  int device = 0;
  int priority = 0;
  std::size_t chain = 0;  // where it is recorded
  std::int64_t last = WorkGraph::kNone;
  std::deque<QueuedItem> items;
  std::int64_t submitted = 0;
  std::int64_t done = 0;
  bool running = false;  // some thread runs its head
  double eagerness = 0;
  std::unique_ptr<Capture> capture;  // null: what it is given is to run
};

/// The machine. Every public function takes the lock itself. Items run with the lock given up, so
/// that streams of several host threads run side by side.
class Runtime {
 public:
  static Runtime& instance();

  void reset(const Settings& settings);
  Settings settings();

  /// What a call of `function` has to return before it does anything, if not cudaSuccess.
  cudaError_t enter(const char* function);
  /// What an unsafe call of a thread that captures returns, else cudaSuccess; part of enter().
  cudaError_t refuse_unsafe(std::string_view function);
  void fail_next(const std::string& function, cudaError_t error);
  void break_context(cudaError_t error, const std::string& text = {});
  std::string broken_text();

  cudaError_t allocate(int device, std::size_t bytes, void** data);
  cudaError_t release(void* data);
  void* allocate_pinned(std::size_t bytes);
  cudaError_t release_pinned(void* data);
  void memory_info(int device, std::size_t* free, std::size_t* total);
  /// Whether a copy or fill may touch [data, data + bytes).
  bool may_touch(const void* data, std::size_t bytes);
  /// Host memory that cudaMallocHost did not allocate.
  bool is_pageable(const void* data);

  cudaStream_t create_stream(int device, int priority);
  cudaError_t destroy_stream(cudaStream_t stream);
  cudaError_t enqueue(cudaStream_t stream, const std::string& name, QueuedItem item);
  cudaError_t synchronize(cudaStream_t stream);
  cudaError_t query(cudaStream_t stream);
  cudaError_t synchronize_device(int device);

  cudaEvent_t create_event(bool timing);
  cudaError_t destroy_event(cudaEvent_t event);
  cudaError_t record(cudaEvent_t event, cudaStream_t stream);
  cudaError_t wait(cudaStream_t stream, cudaEvent_t event);
  cudaError_t synchronize(cudaEvent_t event);
  cudaError_t query(cudaEvent_t event);
  cudaError_t elapsed(float* milliseconds, cudaEvent_t start, cudaEvent_t stop);

  // runtime_graphs.cpp
  cudaError_t begin_capture(cudaStream_t stream);
  cudaError_t end_capture(cudaStream_t stream, cudaGraph_t* graph);
  cudaError_t graph_nodes(cudaGraph_t graph, std::size_t* count);
  cudaError_t instantiate(cudaGraph_t graph, cudaGraphExec_t* executable);
  cudaError_t destroy_graph(cudaGraph_t graph);
  cudaError_t destroy_executable(cudaGraphExec_t executable);
  cudaError_t upload(cudaGraphExec_t executable, cudaStream_t stream);
  cudaError_t launch(cudaGraphExec_t executable, cudaStream_t stream);

  void open_memory();
  void close_memory();

  std::vector<Item> log();
  std::vector<std::int64_t> run_order();
  std::int64_t synchronizations();
  std::int64_t allocations();
  std::vector<Request> requests();
  std::int64_t calls(std::string_view function);
  void count_call(std::string_view function);
  WorkGraph graph();
  void name_thread(const std::string& name);
  void name_memory(const void* data, std::size_t bytes, const std::string& name);

 private:
  using Lock = std::unique_lock<std::mutex>;

  void count(std::string_view function);
  Queue* find(cudaStream_t stream);
  cudaError_t refused_here(std::string_view function);
  static cudaError_t invalidate(Queue& queue, cudaError_t error);
  static cudaError_t add_to_capture(Queue& queue, const std::string& name, QueuedItem item);
  /// `awaited`: the node of what a wait waits for.
  void push(Queue& queue, const std::string& name, QueuedItem item,
            std::int64_t awaited = WorkGraph::kNone);
  /// Whether a thread may be told that a node has run.
  bool told(std::int64_t node) { return !recorder_ || recorder_->has_joined(node); }
  void join(std::int64_t node) {
    if (recorder_) recorder_->join(node);
  }
  /// Runs what `queue` needs to have run `item`.
  void run_until(Lock& lock, std::shared_ptr<Queue> queue, std::int64_t item);
  bool eligible(const Queue& queue) const;
  void run_head(Lock& lock, Queue& queue);
  void run_work(Lock& lock, QueuedItem& item);
  void choose(Lock& lock);
  void run_all(Lock& lock, std::optional<int> device);
  bool stuck(Lock& lock);

  std::mutex mutex_;
  std::condition_variable changed_;
  Settings settings_;
  DeviceMemory memory_;
  PinnedMemory pinned_;
  std::unique_ptr<Recorder> recorder_;
  std::map<void*, std::pair<int, std::size_t>> allocated_;  // device and bytes
  std::array<std::size_t, 16> used_{};                      // bytes, by device
  std::map<cudaStream_t, std::shared_ptr<Queue>> streams_;
  std::map<cudaEvent_t, std::shared_ptr<EventRecord>> events_;
  std::map<cudaGraph_t, std::shared_ptr<const Graph>> graphs_;
  std::map<cudaGraphExec_t, std::shared_ptr<const Graph>> executables_;
  int captures_ = 0;  // that go on
  std::map<std::string, std::int64_t, std::less<>> calls_;
  std::map<std::string, cudaError_t> failing_;
  cudaError_t broken_ = cudaSuccess;
  std::string broken_text_;
  std::vector<Item> log_;
  std::vector<std::int64_t> run_order_;
  std::int64_t synchronizations_ = 0;
  std::int64_t allocations_ = 0;
  std::vector<Request> requests_;
  std::int64_t numbered_ = 0;
  std::mt19937_64 random_;
  std::int64_t choices_ = 0;
};

}  // namespace zero::cuda::emulated
