// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#include "tests/cuda/emulator/runtime.h"

#include <algorithm>
#include <exception>
#include <utility>

#include "base/error.h"

namespace zero::cuda::emulated {
namespace {

constexpr std::chrono::seconds kPatience{20};
/// Choices after which the seeded order draws new eagernesses, so that one run has eager and late
/// phases of each stream.
constexpr std::int64_t kPhase = 32;
constexpr std::array<double, 5> kEagerness{0.0, 0.2, 0.5, 0.8, 1.0};

WorkGraph::Kind kind_of(Item::Kind kind) {
  if (kind == Item::Kind::work) return WorkGraph::Kind::work;
  return kind == Item::Kind::record ? WorkGraph::Kind::record : WorkGraph::Kind::wait;
}

}  // namespace

Runtime& Runtime::instance() {
  static Runtime runtime;
  return runtime;
}

void Runtime::reset(const Settings& settings) {
  const Lock lock(mutex_);
  const std::size_t allocations = allocated_.size() + pinned_.allocations();
  const std::size_t graphs = graphs_.size() + executables_.size();
  ZERO_CHECK(streams_.empty() && events_.empty() && allocations == 0 && graphs == 0,
             "emulator: {} streams, {} events, {} allocations and {} graphs are left over",
             streams_.size(), events_.size(), allocations, graphs);
  settings_ = settings;
  random_.seed(settings.seed);
  failing_.clear();
  calls_.clear();
  broken_ = cudaSuccess;
  broken_text_.clear();
  log_.clear();
  run_order_.clear();
  requests_.clear();
  synchronizations_ = allocations_ = numbered_ = choices_ = 0;
  recorder_ = nullptr;
  if (settings.recording == Settings::Recording::on) {
    recorder_ = std::make_unique<Recorder>(memory_.addresses(), pinned_.addresses());
  }
}

Settings Runtime::settings() {
  const Lock lock(mutex_);
  return settings_;
}

cudaError_t Runtime::enter(const char* function) {
  const Lock lock(mutex_);
  if (recorder_) {
    recorder_->attend();
  } else {
    tracker = nullptr;
  }
  count(function);
  if (broken_ != cudaSuccess) return broken_;
  if (const cudaError_t refused = refused_here(function); refused != cudaSuccess) return refused;
  if (const auto found = failing_.find(function); found != failing_.end()) {
    return failing_.extract(found).mapped();
  }
  return cudaSuccess;
}

void Runtime::fail_next(const std::string& function, cudaError_t error) {
  const Lock lock(mutex_);
  failing_[function] = error;
}

void Runtime::break_context(cudaError_t error, const std::string& text) {
  const Lock lock(mutex_);
  broken_ = error;
  broken_text_ = text;
}

std::string Runtime::broken_text() {
  const Lock lock(mutex_);
  return broken_text_;
}

cudaStream_t Runtime::create_stream(int device, int priority) {
  const Lock lock(mutex_);
  auto queue = std::make_shared<Queue>();
  queue->number = ++numbered_;
  queue->device = device;
  queue->priority = priority;
  if (recorder_) queue->chain = recorder_->add_stream(queue->number, priority);
  const auto handle = reinterpret_cast<cudaStream_t>(queue.get());
  streams_.emplace(handle, std::move(queue));
  return handle;
}

cudaError_t Runtime::destroy_stream(cudaStream_t stream) {
  Lock lock(mutex_);
  const auto found = streams_.find(stream);
  if (found == streams_.end()) return cudaErrorInvalidResourceHandle;
  const std::shared_ptr<Queue> queue = found->second;
  run_until(lock, queue, queue->submitted);
  streams_.erase(stream);
  return cudaSuccess;
}

cudaEvent_t Runtime::create_event(bool timing) {
  const Lock lock(mutex_);
  auto event = std::make_shared<EventRecord>();
  event->number = ++numbered_;
  event->timing = timing;
  const auto handle = reinterpret_cast<cudaEvent_t>(event.get());
  events_.emplace(handle, std::move(event));
  return handle;
}

cudaError_t Runtime::destroy_event(cudaEvent_t event) {
  const Lock lock(mutex_);
  return events_.erase(event) == 1 ? cudaSuccess : cudaErrorInvalidResourceHandle;
}

Queue* Runtime::find(cudaStream_t stream) {
  const auto found = streams_.find(stream);
  return found == streams_.end() ? nullptr : found->second.get();
}

void Runtime::push(Queue& queue, const std::string& name, QueuedItem item, std::int64_t awaited) {
  item.logged = static_cast<std::int64_t>(log_.size());
  log_.push_back(
      {item.kind, name, queue.number, item.event ? item.event->number : 0, item.version});
  if (recorder_) {
    item.node = queue.last = recorder_->queue(queue.chain, kind_of(item.kind), name, awaited);
  }
  queue.items.push_back(std::move(item));
  ++queue.submitted;
  changed_.notify_all();
}

cudaError_t Runtime::enqueue(cudaStream_t stream, const std::string& name, QueuedItem item) {
  Lock lock(mutex_);
  Queue* const queue = find(stream);
  // The default stream would order everything; the project has none.
  if (queue == nullptr) return cudaErrorInvalidResourceHandle;
  if (queue->capture != nullptr) return add_to_capture(*queue, name, std::move(item));
  push(*queue, name, std::move(item));
  choose(lock);
  return cudaSuccess;
}

cudaError_t Runtime::record(cudaEvent_t event, cudaStream_t stream) {
  Lock lock(mutex_);
  Queue* const queue = find(stream);
  const auto found = events_.find(event);
  if (queue == nullptr || found == events_.end()) return cudaErrorInvalidResourceHandle;
  if (queue->capture != nullptr) return invalidate(*queue, cudaErrorStreamCaptureUnsupported);
  EventRecord& point = *found->second;
  QueuedItem item;
  item.kind = Item::Kind::record;
  item.event = found->second;
  item.version = ++point.recorded;
  point.queue = streams_.at(stream);
  point.item = queue->submitted + 1;
  push(*queue, "record", std::move(item));
  point.node = queue->last;
  choose(lock);
  return cudaSuccess;
}

cudaError_t Runtime::wait(cudaStream_t stream, cudaEvent_t event) {
  Lock lock(mutex_);
  Queue* const queue = find(stream);
  const auto found = events_.find(event);
  if (queue == nullptr || found == events_.end()) return cudaErrorInvalidResourceHandle;
  if (queue->capture != nullptr) return invalidate(*queue, cudaErrorStreamCaptureIsolation);
  const EventRecord& point = *found->second;
  QueuedItem item;
  item.kind = Item::Kind::wait;
  item.event = found->second;
  item.version = point.recorded;
  item.awaited = point.queue;
  item.awaited_item = point.item;
  push(*queue, "wait", std::move(item), point.node);
  choose(lock);
  return cudaSuccess;
}

cudaError_t Runtime::synchronize(cudaStream_t stream) {
  Lock lock(mutex_);
  const auto found = streams_.find(stream);
  if (found == streams_.end()) return cudaErrorInvalidResourceHandle;
  const std::shared_ptr<Queue> queue = found->second;
  if (queue->capture != nullptr) return invalidate(*queue, cudaErrorStreamCaptureUnsupported);
  ++synchronizations_;
  run_until(lock, queue, queue->submitted);
  join(queue->last);
  return broken_;
}

cudaError_t Runtime::synchronize(cudaEvent_t event) {
  Lock lock(mutex_);
  const auto found = events_.find(event);
  if (found == events_.end()) return cudaErrorInvalidResourceHandle;
  const std::shared_ptr<EventRecord> point = found->second;
  ++synchronizations_;
  if (point->queue) run_until(lock, point->queue, point->item);
  join(point->node);
  return broken_;
}

cudaError_t Runtime::synchronize_device(int device) {
  Lock lock(mutex_);
  ++synchronizations_;
  const auto streams = streams_;
  for (const auto& [handle, queue] : streams) {
    if (queue->device != device) continue;
    run_until(lock, queue, queue->submitted);
    join(queue->last);
  }
  return broken_;
}

cudaError_t Runtime::query(cudaStream_t stream) {
  const Lock lock(mutex_);
  Queue* const queue = find(stream);
  if (queue == nullptr) return cudaErrorInvalidResourceHandle;
  if (queue->capture != nullptr) return invalidate(*queue, cudaErrorStreamCaptureUnsupported);
  return queue->done == queue->submitted && told(queue->last) ? cudaSuccess : cudaErrorNotReady;
}

cudaError_t Runtime::query(cudaEvent_t event) {
  const Lock lock(mutex_);
  const auto found = events_.find(event);
  if (found == events_.end()) return cudaErrorInvalidResourceHandle;
  const EventRecord& point = *found->second;
  return point.completed == point.recorded && told(point.node) ? cudaSuccess : cudaErrorNotReady;
}

cudaError_t Runtime::elapsed(float* milliseconds, cudaEvent_t start, cudaEvent_t stop) {
  const Lock lock(mutex_);
  const auto first = events_.find(start);
  const auto last = events_.find(stop);
  if (first == events_.end() || last == events_.end()) return cudaErrorInvalidResourceHandle;
  for (const auto& each : {first->second, last->second}) {
    if (!each->timing || each->recorded == 0) return cudaErrorInvalidResourceHandle;
    if (each->completed != each->recorded) return cudaErrorNotReady;
  }
  const auto spent = last->second->time - first->second->time;
  *milliseconds = std::chrono::duration<float, std::milli>(spent).count();
  return cudaSuccess;
}

bool Runtime::eligible(const Queue& queue) const {
  if (queue.running || queue.items.empty()) return false;
  const QueuedItem& head = queue.items.front();
  if (head.kind == Item::Kind::wait) {
    return !head.awaited || head.awaited->done >= head.awaited_item;
  }
  return !head.ready || head.ready();
}

void Runtime::run_until(Lock& lock, std::shared_ptr<Queue> queue, std::int64_t item) {
  while (queue->done < item && broken_ == cudaSuccess) {
    if (eligible(*queue)) {
      run_head(lock, *queue);
    } else if (!queue->running && queue->items.front().kind == Item::Kind::wait) {
      const QueuedItem& head = queue->items.front();
      run_until(lock, head.awaited, head.awaited_item);
    } else if (stuck(lock)) {
      broken_ = cudaErrorLaunchTimeout;
      broken_text_ = "the emulator waited for work that nothing makes ready";
    }
  }
}

/// Waits until something has changed; whether nothing has for long.
bool Runtime::stuck(Lock& lock) {
  return changed_.wait_for(lock, kPatience) == std::cv_status::timeout;
}

void Runtime::run_head(Lock& lock, Queue& queue) {
  QueuedItem item = std::move(queue.items.front());
  queue.items.pop_front();
  run_order_.push_back(item.logged);
  if (recorder_) recorder_->start(item.node);
  if (item.kind == Item::Kind::record) {
    item.event->completed = std::max(item.event->completed, item.version);
    item.event->time = std::chrono::steady_clock::now();
  } else if (item.work) {
    queue.running = true;
    run_work(lock, item);
    queue.running = false;
  }
  ++queue.done;
  changed_.notify_all();
}

void Runtime::run_work(Lock& lock, QueuedItem& item) {
  if (item.opens_memory) memory_.open();
  Tracker own = recorder_ ? recorder_->item_tracker() : Tracker();
  Tracker* const outer = std::exchange(tracker, recorder_ ? &own : nullptr);
  lock.unlock();
  std::string error;
  try {
    item.work();
    item.work = nullptr;
  } catch (const std::exception& failure) {
    error = failure.what();
  }
  lock.lock();
  if (item.opens_memory) memory_.close();
  tracker = outer;
  if (recorder_) recorder_->finish(item.node, own.accesses());
  if (error.empty()) return;
  broken_ = cudaErrorLaunchFailure;
  broken_text_ = error;
}

void Runtime::choose(Lock& lock) {
  if (settings_.order == Settings::Order::prompt) return run_all(lock, {});
  if (settings_.order != Settings::Order::seeded || streams_.empty()) return;
  if (choices_++ % kPhase == 0) {
    for (auto& [handle, queue] : streams_) queue->eagerness = kEagerness[random_() % 5];
  }
  bool ran = true;
  while (ran && broken_ == cudaSuccess) {
    auto next = streams_.begin();
    std::advance(next, static_cast<std::ptrdiff_t>(random_() % streams_.size()));
    const std::shared_ptr<Queue> queue = next->second;
    const double draw = static_cast<double>(random_() >> 11) * 0x1p-53;
    ran = draw < queue->eagerness && eligible(*queue);
    if (ran) run_head(lock, *queue);
  }
}

/// What may run, of one device or of all.
void Runtime::run_all(Lock& lock, std::optional<int> device) {
  bool ran = true;
  while (ran && broken_ == cudaSuccess) {
    ran = false;
    const auto streams = streams_;
    for (const auto& [handle, queue] : streams) {
      if (queue->device != device.value_or(queue->device) || !eligible(*queue)) continue;
      run_head(lock, *queue);
      ran = true;
    }
  }
}

}  // namespace zero::cuda::emulated
