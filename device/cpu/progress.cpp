// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#include "device/cpu/progress.h"

#include <chrono>
#include <thread>
#include <utility>

#include "base/error.h"

namespace zero::cpu {
namespace {

constexpr int kLooksBeforeSleep = 200;

class PointState final : public Event::State {
 public:
  PointState(std::shared_ptr<Progress> progress, std::int64_t item)
      : progress_(std::move(progress)), item_(item) {}
  bool complete() override { return progress_->done() >= item_; }
  void synchronize() override { progress_->wait(item_); }

 private:
  std::shared_ptr<Progress> progress_;
  std::int64_t item_;
};

}  // namespace

void Progress::advance(std::exception_ptr error) {
  {
    const std::lock_guard lock(mutex_);
    const std::int64_t item = done_.load(std::memory_order_relaxed) + 1;
    if (error && !error_) {
      error_ = std::move(error);
      failed_at_ = item;
      failed_.store(true, std::memory_order_release);
    }
    done_.store(item, std::memory_order_release);
  }
  changed_.notify_all();
}

void Progress::wait(std::int64_t item) {
  for (int i = 0; i < kLooksBeforeSleep && done() < item; ++i) {
    std::atomic_signal_fence(std::memory_order_seq_cst);
  }
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [&] { return done() >= item; });
  if (error_ && failed_at_ <= item) std::rethrow_exception(error_);
}

void Progress::rethrow() {
  if (!failed()) return;
  const std::lock_guard lock(mutex_);
  std::rethrow_exception(error_);
}

Event event_at(std::shared_ptr<Progress> progress, std::int64_t item) {
  return Event(std::make_shared<PointState>(std::move(progress), item));
}

std::exception_ptr current_error(std::string_view what) {
  try {
    throw;
  } catch (const Error&) {
    return std::current_exception();
  } catch (const std::exception& error) {
    return std::make_exception_ptr(Error(fmt::format("{}: {}", what, error.what())));
  } catch (...) {
    return std::current_exception();
  }
}

void wait_and_count(const Event& event, std::atomic<std::int64_t>& waited) {
  if (event.complete()) {
    event.synchronize();  // rethrows its error
    return;
  }
  using Clock = std::chrono::steady_clock;
  const auto start = Clock::now();
  const auto count = [&] {
    waited += std::chrono::duration_cast<std::chrono::nanoseconds>(Clock::now() - start).count();
  };
  try {
    event.synchronize();
  } catch (...) {
    count();
    throw;
  }
  count();
}

}  // namespace zero::cpu
