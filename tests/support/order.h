// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstdint>
#include <deque>
#include <exception>
#include <memory>
#include <optional>
#include <random>
#include <string>

#include "tests/support/closed_memory.h"
#include "tests/support/test_device.h"

namespace zero::testing {

/// Runs the queued work of a test device's streams on the calling thread, in an order that the
/// policy chooses among those that the recorded waits allow. Items of a stream are numbered from 1.
class Order : public std::enable_shared_from_this<Order> {
 public:
  static constexpr int kStreams = 3;

  explicit Order(const StreamOrder& policy);

  /// `opens`: memory that is open while the work runs, and shut before the host, or work without
  /// it, goes on; the same for all work, or null.
  void submit(int stream, std::string_view what, Stream::Work work, ClosedMemory* opens);
  void wait(int stream, const Event& event);
  Event record(int stream);
  void synchronize(int stream);
  double waited_seconds(int stream) const { return queue(stream).waited_seconds; }

  /// Drops the work that has not run; breaks the reference cycle of events queued in their own
  /// Order.
  void drop();

  bool complete(int stream, std::int64_t item) const { return queue(stream).done >= item; }
  /// Runs the work that item `item` of `stream` needs, under the seeded policy perhaps more;
  /// rethrows the stream's error if it occurred at or before `item`.
  void run_until(int stream, std::int64_t item);

 private:
  struct Item {
    std::string what;
    Stream::Work work;  // empty: a wait for `event`
    Event event;
    ClosedMemory* opens = nullptr;
  };
  struct Queue {
    std::deque<Item> items;
    std::int64_t submitted = 0;
    std::int64_t done = 0;
    std::exception_ptr error;
    std::int64_t failed_at = 0;
    bool running = false;
    double eagerness = 0;
    double waited_seconds = 0;
  };

  /// A call that runs work. Opening and shutting memory takes longer than most work: it stays open
  /// to the end of the outermost call.
  class Call {
   public:
    explicit Call(Order& order) : order_(order) { ++order_.calls_; }
    ~Call() {
      if (--order_.calls_ == 0) order_.shut_unless_working();
    }
    Call(const Call&) = delete;
    Call& operator=(const Call&) = delete;

   private:
    Order& order_;
  };

  Queue& queue(int stream) { return queues_[static_cast<std::size_t>(stream)]; }
  const Queue& queue(int stream) const { return queues_[static_cast<std::size_t>(stream)]; }
  void rethrow(int stream) const;
  void push(int stream, Item item);
  /// A point at which the seeded policy may run work.
  void choose();
  bool try_head(int stream);
  /// Tries each stream once, from `first` on, until one runs its head.
  bool try_any_from(int first);
  bool eligible(int stream) const;
  void run_head(int stream);
  void run_work(const Item& item);
  void shut_unless_working();
  /// Runs the head of `stream`, after the work that it waits for.
  void force_head(int stream);
  bool seeded() const { return policy_.policy == StreamOrder::Policy::seeded; }
  /// One of the streams with queued work; stream 0 if there is none.
  int pick_stream();

  StreamOrder policy_;
  std::mt19937_64 random_;
  std::int64_t choices_ = 0;
  bool choosing_ = false;
  std::array<Queue, kStreams> queues_;
  int calls_ = 0;    // one within another
  int working_ = 0;  // work with memory that is open, one within another
  std::optional<ClosedMemory::Open> open_;
};

}  // namespace zero::testing
