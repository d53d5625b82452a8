// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <condition_variable>
#include <deque>
#include <memory>
#include <mutex>
#include <string>
#include <thread>

#include "base/nanoseconds.h"
#include "device/cpu/progress.h"
#include "device/stream.h"

namespace zero::cpu {

/// A stream whose work runs in order on a thread of its own. The thread sleeps while the queue is
/// empty. Destruction runs all submitted work, then ends the thread.
class WorkerStream final : public Stream {
 public:
  WorkerStream() : worker_([this] { run(); }) {}
  ~WorkerStream() override;

  Event record() override { return event_at(progress_, submitted_); }
  void synchronize() override;
  double waited_seconds() const override { return to_seconds(waited_.load()); }

 private:
  void do_submit(std::string_view what, Work work) override;
  void do_wait(const Event& event) override;

  struct Item {
    std::string what;
    Work work;
  };

  void push(Item item);
  void run();
  /// Runs the item's work, or drops it on a failed stream, and destroys it; returns the work's
  /// error.
  std::exception_ptr run_item(Item item) const;

  std::shared_ptr<Progress> progress_ = std::make_shared<Progress>();
  std::int64_t submitted_ = 0;           // used by the host thread only
  std::atomic<std::int64_t> waited_{0};  // nanoseconds
  std::mutex mutex_;
  std::condition_variable arrived_;
  std::deque<Item> queue_;
  bool ending_ = false;
  std::thread worker_;  // last: uses all other members
};

}  // namespace zero::cpu
