// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <deque>
#include <functional>
#include <mutex>
#include <thread>

namespace zero {

/// Runs work that may block for long, in order, on a thread that lives while there is some. Host
/// work of a CUDA stream may hold up that of all streams; such work is better here.
class BackgroundQueue {
 public:
  BackgroundQueue() = default;
  /// Waits for all work.
  ~BackgroundQueue() { join(); }
  BackgroundQueue(const BackgroundQueue&) = delete;
  BackgroundQueue& operator=(const BackgroundQueue&) = delete;

  /// Adds work, which must not throw. Runs it at once where no thread can be made. Any thread.
  void add(std::function<void()> work);
  /// Blocks until no work is left. Not on the thread itself.
  void join() noexcept;

 private:
  void run() noexcept;

  std::mutex starting_;  // held while thread_ changes, but not by run()
  std::mutex mutex_;
  std::deque<std::function<void()>> work_;
  bool running_ = false;
  std::thread thread_;
};

}  // namespace zero
