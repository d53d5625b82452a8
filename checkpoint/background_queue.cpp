// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#include "checkpoint/background_queue.h"

#include <system_error>
#include <utility>

namespace zero {

void BackgroundQueue::add(std::function<void()> work) {
  const std::lock_guard starting(starting_);
  {
    const std::lock_guard lock(mutex_);
    work_.push_back(std::move(work));
    if (std::exchange(running_, true)) return;
  }
  if (thread_.joinable()) thread_.join();  // has found no work, and ends
  try {
    thread_ = std::thread([this] { run(); });
  } catch (const std::system_error&) {
    run();
  }
}

void BackgroundQueue::run() noexcept {
  for (;;) {
    std::function<void()> work;
    {
      const std::lock_guard lock(mutex_);
      if (work_.empty()) {
        running_ = false;
        return;
      }
      work = std::move(work_.front());
      work_.pop_front();
    }
    work();
  }
}

void BackgroundQueue::join() noexcept {
  const std::lock_guard starting(starting_);
  if (thread_.joinable()) thread_.join();
}

}  // namespace zero
