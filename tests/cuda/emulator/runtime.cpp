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

}  // namespace

Runtime& Runtime::instance() {
  static Runtime runtime;
  return runtime;
}

void Runtime::reset(const Settings& settings) {
  const Lock lock(mutex_);
  ZERO_CHECK(streams_.empty() && events_.empty() && allocated_.empty(),
             "emulator: {} streams, {} events and {} allocations are left over", streams_.size(),
             events_.size(), allocated_.size());
  settings_ = settings;
  random_.seed(settings.seed);
  failing_.clear();
  broken_ = cudaSuccess;
  broken_text_.clear();
  log_.clear();
  run_order_.clear();
  synchronizations_ = allocations_ = numbered_ = choices_ = 0;
}

Settings Runtime::settings() {
  const Lock lock(mutex_);
  return settings_;
}

cudaError_t Runtime::enter(const char* function) {
  const Lock lock(mutex_);
  if (broken_ != cudaSuccess) return broken_;
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

void Runtime::push(Queue& queue, const std::string& name, QueuedItem item) {
  item.logged = static_cast<std::int64_t>(log_.size());
  log_.push_back(
      {item.kind, name, queue.number, item.event ? item.event->number : 0, item.version});
  queue.items.push_back(std::move(item));
  ++queue.submitted;
  changed_.notify_all();
}

cudaError_t Runtime::enqueue(cudaStream_t stream, const std::string& name, QueuedItem item) {
  Lock lock(mutex_);
  Queue* const queue = find(stream);
  // The default stream would order everything; the project has none.
  if (queue == nullptr) return cudaErrorInvalidResourceHandle;
  push(*queue, name, std::move(item));
  choose(lock);
  return cudaSuccess;
}

cudaError_t Runtime::record(cudaEvent_t event, cudaStream_t stream) {
  Lock lock(mutex_);
  Queue* const queue = find(stream);
  const auto found = events_.find(event);
  if (queue == nullptr || found == events_.end()) return cudaErrorInvalidResourceHandle;
  EventRecord& point = *found->second;
  QueuedItem item;
  item.kind = Item::Kind::record;
  item.event = found->second;
  item.version = ++point.recorded;
  point.queue = streams_.at(stream);
  point.item = queue->submitted + 1;
  push(*queue, "record", std::move(item));
  choose(lock);
  return cudaSuccess;
}

cudaError_t Runtime::wait(cudaStream_t stream, cudaEvent_t event) {
  Lock lock(mutex_);
  Queue* const queue = find(stream);
  const auto found = events_.find(event);
  if (queue == nullptr || found == events_.end()) return cudaErrorInvalidResourceHandle;
  const EventRecord& point = *found->second;
  QueuedItem item;
  item.kind = Item::Kind::wait;
  item.event = found->second;
  item.version = point.recorded;
  item.awaited = point.queue;
  item.awaited_item = point.item;
  push(*queue, "wait", std::move(item));
  choose(lock);
  return cudaSuccess;
}

cudaError_t Runtime::synchronize(cudaStream_t stream) {
  Lock lock(mutex_);
  const auto found = streams_.find(stream);
  if (found == streams_.end()) return cudaErrorInvalidResourceHandle;
  const std::shared_ptr<Queue> queue = found->second;
  ++synchronizations_;
  run_until(lock, queue, queue->submitted);
  return broken_;
}

cudaError_t Runtime::synchronize(cudaEvent_t event) {
  Lock lock(mutex_);
  const auto found = events_.find(event);
  if (found == events_.end()) return cudaErrorInvalidResourceHandle;
  const std::shared_ptr<EventRecord> point = found->second;
  ++synchronizations_;
  if (point->queue) run_until(lock, point->queue, point->item);
  return broken_;
}

cudaError_t Runtime::synchronize_device(int device) {
  Lock lock(mutex_);
  ++synchronizations_;
  const auto streams = streams_;
  for (const auto& [handle, queue] : streams) {
    if (queue->device == device) run_until(lock, queue, queue->submitted);
  }
  return broken_;
}

cudaError_t Runtime::query(cudaStream_t stream) {
  const Lock lock(mutex_);
  const Queue* const queue = find(stream);
  if (queue == nullptr) return cudaErrorInvalidResourceHandle;
  return queue->done == queue->submitted ? cudaSuccess : cudaErrorNotReady;
}

cudaError_t Runtime::query(cudaEvent_t event) {
  const Lock lock(mutex_);
  const auto found = events_.find(event);
  if (found == events_.end()) return cudaErrorInvalidResourceHandle;
  return found->second->completed == found->second->recorded ? cudaSuccess : cudaErrorNotReady;
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
  if (error.empty()) return;
  broken_ = cudaErrorLaunchFailure;
  broken_text_ = error;
}

void Runtime::choose(Lock& lock) {
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

void Runtime::drain(Lock& lock, int device) {
  bool ran = true;
  while (ran && broken_ == cudaSuccess) {
    ran = false;
    const auto streams = streams_;
    for (const auto& [handle, queue] : streams) {
      if (queue->device != device || !eligible(*queue)) continue;
      run_head(lock, *queue);
      ran = true;
    }
  }
}

std::vector<Item> Runtime::log() {
  const Lock lock(mutex_);
  return log_;
}

std::vector<std::int64_t> Runtime::run_order() {
  const Lock lock(mutex_);
  return run_order_;
}

std::int64_t Runtime::synchronizations() {
  const Lock lock(mutex_);
  return synchronizations_;
}

std::int64_t Runtime::allocations() {
  const Lock lock(mutex_);
  return allocations_;
}

void Runtime::count_allocation() {
  const Lock lock(mutex_);
  ++allocations_;
}

cudaError_t Runtime::allocate(int device, std::size_t bytes, void** data) {
  const Lock lock(mutex_);
  ++allocations_;
  std::size_t& used = used_.at(static_cast<std::size_t>(device));
  if (bytes > settings_.memory - used) return cudaErrorMemoryAllocation;
  *data = memory_.allocate(bytes);
  if (*data == nullptr) return cudaErrorMemoryAllocation;
  used += bytes;
  allocated_.emplace(*data, std::pair(device, bytes));
  return cudaSuccess;
}

cudaError_t Runtime::release(void* data) {
  Lock lock(mutex_);
  const auto found = allocated_.find(data);
  if (found == allocated_.end()) return cudaErrorInvalidValue;
  const auto [device, bytes] = found->second;
  drain(lock, device);  // as cudaFree does
  used_.at(static_cast<std::size_t>(device)) -= bytes;
  memory_.release(data);
  allocated_.erase(data);
  return cudaSuccess;
}

void Runtime::memory_info(int device, std::size_t* free, std::size_t* total) {
  const Lock lock(mutex_);
  *total = settings_.memory;
  *free = settings_.memory - used_.at(static_cast<std::size_t>(device));
}

bool Runtime::may_touch(const void* data, std::size_t bytes) {
  const Lock lock(mutex_);
  return !memory_.covers(data) || memory_.holds(data, bytes);
}

void Runtime::open_memory() {
  const Lock lock(mutex_);
  memory_.open();
}

void Runtime::close_memory() {
  const Lock lock(mutex_);
  memory_.close();
}

}  // namespace zero::cuda::emulated
