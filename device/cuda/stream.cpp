// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#include "device/cuda/stream.h"

#include <algorithm>
#include <atomic>
#include <exception>
#include <mutex>
#include <optional>
#include <string>
#include <utility>

#include "base/error.h"
#include "device/cpu/progress.h"
#include "device/cuda/check.h"

namespace zero::cuda {

class Failure {
 public:
  void set(std::exception_ptr error, std::int64_t item) {
    const std::lock_guard lock(mutex_);
    if (error_) return;
    error_ = std::move(error);
    item_ = item;
    failed_.store(true, std::memory_order_release);
  }
  bool failed() const { return failed_.load(std::memory_order_acquire); }
  /// The error, if it occurred at or before `item`.
  std::exception_ptr error(std::int64_t item) {
    if (!failed()) return nullptr;
    const std::lock_guard lock(mutex_);
    return item_ <= item ? error_ : nullptr;
  }

 private:
  std::atomic<bool> failed_{false};
  std::mutex mutex_;
  std::exception_ptr error_;
  std::int64_t item_ = 0;
};

namespace {

/// The number of waits kept before those that have run are added to the total.
constexpr std::size_t kWaitsKept = 256;

class Point final : public Event::State {
 public:
  Point(EventHandle event, std::shared_ptr<EventPool> pool, std::shared_ptr<Failure> failure,
        std::int64_t item)
      : event_(std::move(event)),
        pool_(std::move(pool)),
        failure_(std::move(failure)),
        item_(item) {}
  ~Point() override { pool_->give_back(std::move(event_)); }

  bool complete() override {
    const cudaError_t status = cudaEventQuery(event_.get());
    if (status == cudaErrorNotReady) return false;
    check(status, "ask for an event");
    return true;
  }
  void synchronize() override {
    check(cudaEventSynchronize(event_.get()), "wait for an event");
    if (const auto error = failure_->error(item_)) std::rethrow_exception(error);
  }

  cudaEvent_t event() const { return event_.get(); }
  const std::shared_ptr<Failure>& failure() const { return failure_; }
  std::int64_t item() const { return item_; }

 private:
  EventHandle event_;
  std::shared_ptr<EventPool> pool_;
  std::shared_ptr<Failure> failure_;
  std::int64_t item_;
};

/// A point with a timestamp.
class ClockedPoint final : public Mark::State {
 public:
  ClockedPoint(EventHandle event, std::shared_ptr<EventPool> pool)
      : event_(std::move(event)), pool_(std::move(pool)) {}
  ~ClockedPoint() override { pool_->give_back(std::move(event_)); }

  std::optional<double> seconds_since(const State& earlier) const override {
    const auto* const other = dynamic_cast<const ClockedPoint*>(&earlier);
    ZERO_CHECK(other != nullptr, "cuda: marks of two devices have no clock in common");
    if (!passed() || !other->passed()) return std::nullopt;
    float milliseconds = 0;
    check(cudaEventElapsedTime(&milliseconds, other->event_.get(), event_.get()), "read a clock");
    return static_cast<double>(milliseconds) * 1e-3;
  }

 private:
  bool passed() const {
    const cudaError_t status = cudaEventQuery(event_.get());
    if (status == cudaErrorNotReady) return false;
    check(status, "ask for a clock");
    return true;
  }

  EventHandle event_;
  std::shared_ptr<EventPool> pool_;
};

/// Host code queued in a stream.
struct HostWork {
  std::string what;
  Stream::Work work;
  std::shared_ptr<Failure> failure;
  std::int64_t item;
  std::vector<Upstream> upstream;
};

/// Propagates the error of a stream that was waited for to this stream.
void adopt(const std::vector<Upstream>& upstream, Failure& failure, std::int64_t item) {
  for (const Upstream& each : upstream) {
    if (auto error = each.failure->error(each.item)) failure.set(std::move(error), item);
  }
}

void CUDART_CB run_host_work(void* data) {
  const std::unique_ptr<HostWork> host(static_cast<HostWork*>(data));
  adopt(host->upstream, *host->failure, host->item);
  if (host->failure->failed()) return;
  try {
    host->work();
  } catch (...) {
    host->failure->set(cpu::current_error(host->what), host->item);
  }
}

EventHandle make_event(unsigned flags) {
  EventHandle event;
  check(cudaEventCreateWithFlags(event.put(), flags), "make an event");
  return event;
}

}  // namespace

EventPool::EventPool(unsigned flags, int ready) : flags_(flags) {
  idle_.reserve(1024);  // give_back() must not fail
  for (int i = 0; i < ready; ++i) idle_.push_back(make_event(flags_));
}

EventHandle EventPool::take() {
  {
    const std::lock_guard lock(mutex_);
    if (!idle_.empty()) {
      EventHandle event = std::move(idle_.back());
      idle_.pop_back();
      return event;
    }
  }
  return make_event(flags_);
}

void EventPool::give_back(EventHandle event) noexcept {
  const std::lock_guard lock(mutex_);
  if (idle_.size() < idle_.capacity()) idle_.push_back(std::move(event));
}

CudaStream::CudaStream(int device, int priority, Pools pools)
    : device_(device), pools_(std::move(pools)), failure_(std::make_shared<Failure>()) {
  activate();
  check(cudaStreamCreateWithPriority(stream_.put(), cudaStreamNonBlocking, priority),
        "make a stream");
}

void CudaStream::activate() const { check(cudaSetDevice(device_), "choose the device"); }

void CudaStream::rethrow() {
  adopt(upstream_, *failure_, submitted_);
  if (const auto error = failure_->error(submitted_)) std::rethrow_exception(error);
}

/// An error of work fails the stream; during a capture it may be a refusal, which the capture's end
/// decides.
void CudaStream::take_error(std::exception_ptr error) {
  if (repeating_ == nullptr || !repeating_->captures) {
    return failure_->set(std::move(error), submitted_);
  }
  repeating_->of_work = error;
  std::rethrow_exception(error);
}

void CudaStream::do_submit(std::string_view what, Work work) {
  rethrow();
  activate();
  ++submitted_;
  if (repeating_ != nullptr) repeating_->submissions.add(what);
  try {
    work();
  } catch (...) {
    take_error(cpu::current_error(what));
  }
  rethrow();
}

void CudaStream::do_submit_host(std::string_view what, Work work) {
  refuse_in_capture("submit_host");
  rethrow();
  activate();
  ++submitted_;
  auto host = std::make_unique<HostWork>(
      HostWork{std::string(what), std::move(work), failure_, submitted_, upstream_});
  check(cudaLaunchHostFunc(stream_.get(), run_host_work, host.get()), what);
  host.release();  // run_host_work owns it
  behind_ = false;
}

Event CudaStream::record() {
  refuse_in_capture("record");
  if (behind_) return latest_;
  activate();
  EventHandle event = pools_.points->take();
  check(cudaEventRecord(event.get(), stream_.get()), "record an event");
  latest_ = Event(std::make_shared<Point>(std::move(event), pools_.points, failure_, submitted_));
  behind_ = true;
  return latest_;
}

void CudaStream::enqueue_wait(const Event& event, const std::optional<WaitMeter>& meter) {
  rethrow();
  if (event.state() == nullptr) return;
  refuse_in_capture("wait");
  auto* const point = dynamic_cast<Point*>(event.state());
  if (point == nullptr) {  // of another kind of device, whose event this queue cannot wait for
    try {
      event.synchronize();
    } catch (...) {
      failure_->set(cpu::current_error("wait"), submitted_);
    }
    return rethrow();
  }
  remember(point->failure(), point->item());
  if (point->complete()) return rethrow();
  PendingWait pending{mark(), {}, meter};
  check(cudaStreamWaitEvent(stream_.get(), point->event(), 0), "wait for an event");
  pending.end = mark();
  waits_.push_back(std::move(pending));
  behind_ = false;
  if (waits_.size() > kWaitsKept) fold();
}

Mark CudaStream::mark() {
  refuse_in_capture("mark");
  activate();
  EventHandle event = pools_.clocks->take();
  check(cudaEventRecord(event.get(), stream_.get()), "record a clock");
  return Mark(std::make_shared<ClockedPoint>(std::move(event), pools_.clocks));
}

void CudaStream::remember(const std::shared_ptr<Failure>& failure, std::int64_t item) {
  if (failure == failure_) return;
  const auto known = std::ranges::find(upstream_, failure, &Upstream::failure);
  if (known == upstream_.end()) {
    upstream_.push_back({failure, item});
  } else {
    known->item = std::max(known->item, item);
  }
}

void CudaStream::synchronize() {
  refuse_in_capture("synchronize");
  check(cudaStreamSynchronize(stream_.get()), "wait for a stream");
  rethrow();
}

void CudaStream::fold() const {
  while (!waits_.empty()) {
    const std::optional<double> spent = waits_.front().end.seconds_since(waits_.front().begin);
    if (!spent) return;
    waited_seconds_ += *spent;
    if (waits_.front().meter) waits_.front().meter->add(*spent);
    waits_.pop_front();
  }
}

double CudaStream::waited_seconds() const {
  fold();
  return waited_seconds_;
}

cudaStream_t native(Stream& stream) {
  auto* const own = dynamic_cast<CudaStream*>(&stream);
  ZERO_CHECK(own != nullptr,
             "cuda: work was submitted to a stream of another device; use the CUDA device's own");
  own->activate();
  own->behind_ = false;
  return own->stream_.get();
}

}  // namespace zero::cuda
