// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#include "device/cpu/worker_stream.h"

#include <utility>

namespace zero::cpu {

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
