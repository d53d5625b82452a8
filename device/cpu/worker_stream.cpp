// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#include "device/cpu/worker_stream.h"

#include <sched.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cstdint>
#include <utility>

namespace zero::cpu {
namespace {

/// Asks the kernel to run this thread as soon as it wakes, where other threads compute on the same
/// cores: it works in short turns, and waits most of the time. Linux does from 6.12 on; before, it
/// takes no notice.
void ask_for_short_turns() {
  if (::sched_getscheduler(0) != SCHED_OTHER) return;
  struct {
    std::uint32_t size;
    std::uint32_t policy;
    std::uint64_t flags;
    std::int32_t nice;
    std::uint32_t priority;
    std::uint64_t runtime;  // of ordinary threads: nanoseconds of a turn
    std::uint64_t deadline;
    std::uint64_t period;
  } attributes{};
  attributes.size = sizeof(attributes);
  attributes.policy = SCHED_OTHER;
  attributes.nice = ::getpriority(PRIO_PROCESS, 0);
  attributes.runtime = 100'000;
  static_cast<void>(::syscall(SYS_sched_setattr, 0, &attributes, 0));
}

}  // namespace

WorkerStream::~WorkerStream() {
  {
    const std::lock_guard lock(mutex_);
    ending_ = true;
  }
  arrived_.notify_one();
  worker_.join();
}

void WorkerStream::do_submit(std::string_view what, Work work) {
  progress_->rethrow();
  push({std::string(what), std::move(work)});
}

void WorkerStream::do_wait(const Event& event) {
  progress_->rethrow();
  if (event.state() == nullptr) return;
  push({"wait", [this, event] { wait_and_count(event, waited_); }});
}

void WorkerStream::synchronize() { progress_->wait(submitted_); }

void WorkerStream::push(Item item) {
  {
    const std::lock_guard lock(mutex_);
    queue_.push_back(std::move(item));
  }
  ++submitted_;
  arrived_.notify_one();
}

void WorkerStream::run() {
  ask_for_short_turns();
  for (;;) {
    Item item;
    {
      std::unique_lock lock(mutex_);
      arrived_.wait(lock, [this] { return ending_ || !queue_.empty(); });
      if (queue_.empty()) return;
      item = std::move(queue_.front());
      queue_.pop_front();
    }
    std::exception_ptr error =
        run_item(std::move(item));  // destroys the work before it counts as done
    progress_->advance(std::move(error));
  }
}

std::exception_ptr WorkerStream::run_item(Item item) const {
  if (progress_->failed()) return nullptr;  // dropped
  try {
    item.work();
    return nullptr;
  } catch (...) {
    return current_error(item.what);
  }
}

}  // namespace zero::cpu
