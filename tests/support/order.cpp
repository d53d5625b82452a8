// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#include "tests/support/order.h"

#include <algorithm>
#include <chrono>
#include <utility>

#include "device/cpu/progress.h"

namespace zero::testing {
namespace {

/// The number of choices after which the seeded policy redraws each stream's eagerness, so that one
/// run has eager and late phases of each stream.
constexpr std::int64_t kPhase = 32;
constexpr std::array<double, 5> kEagerness{0.0, 0.2, 0.5, 0.8, 1.0};

class QueuedState final : public Event::State {
 public:
  QueuedState(std::shared_ptr<Order> order, int stream, std::int64_t item)
      : order_(std::move(order)), stream_(stream), item_(item) {}
  bool complete() override { return order_->complete(stream_, item_); }
  void synchronize() override { order_->run_until(stream_, item_); }

 private:
  std::shared_ptr<Order> order_;
  int stream_;
  std::int64_t item_;
};

}  // namespace

Order::Order(const StreamOrder& policy) : policy_(policy), random_(policy.seed) {}

void Order::submit(int stream, std::string_view what, Stream::Work work, ClosedMemory* opens) {
  push(stream, {std::string(what), std::move(work), {}, opens});
}

void Order::wait(int stream, const Event& event) {
  if (event.state() == nullptr) return rethrow(stream);
  push(stream, {"wait", nullptr, event, nullptr});
}

void Order::push(int stream, Item item) {
  rethrow(stream);
  queue(stream).items.push_back(std::move(item));
  ++queue(stream).submitted;
  choose();
}

Event Order::record(int stream) {
  Event event(std::make_shared<QueuedState>(shared_from_this(), stream, queue(stream).submitted));
  choose();
  return event;
}

void Order::synchronize(int stream) {
  choose();
  run_until(stream, queue(stream).submitted);
}

void Order::drop() {
  for (Queue& each : queues_) {
    const std::deque<Item> items = std::exchange(each.items, {});
    each.done += static_cast<std::int64_t>(items.size());
  }
}

void Order::rethrow(int stream) const {
  if (queue(stream).error) std::rethrow_exception(queue(stream).error);
}

void Order::shut_unless_working() {
  if (working_ == 0) open_.reset();
}

void Order::run_work(const Item& item) {
  if (item.opens == nullptr) {
    shut_unless_working();
    return item.work();
  }
  if (!open_) open_.emplace(item.opens);
  ++working_;
  try {
    item.work();
  } catch (...) {
    --working_;
    throw;
  }
  --working_;
}

void Order::run_until(int stream, std::int64_t item) {
  const Call call(*this);
  while (queue(stream).done < item) {
    ZERO_CHECK(!queue(stream).running,
               "test device: work waits for its own stream, which would never end");
    if (seeded() && try_head(pick_stream())) continue;
    force_head(stream);
  }
  if (queue(stream).error && queue(stream).failed_at <= item) rethrow(stream);
}

void Order::choose() {
  const bool inside_work = std::ranges::any_of(queues_, &Queue::running);
  if (!seeded() || choosing_ || inside_work) return;
  if (choices_++ % kPhase == 0) {
    for (Queue& each : queues_) each.eagerness = kEagerness[random_() % kEagerness.size()];
  }
  choosing_ = true;
  const Call call(*this);
  while (try_any_from(pick_stream())) {
  }
  choosing_ = false;
}

int Order::pick_stream() {
  std::array<int, kStreams> queued{};
  std::size_t count = 0;
  for (int stream = 0; stream < kStreams; ++stream) {
    if (!queue(stream).items.empty()) queued[count++] = stream;
  }
  return count == 0 ? 0 : queued[random_() % count];
}

bool Order::try_any_from(int first) {
  for (int i = 0; i < kStreams; ++i) {
    if (try_head((first + i) % kStreams)) return true;
  }
  return false;
}

bool Order::try_head(int stream) {
  const double draw = static_cast<double>(random_() >> 11) * 0x1p-53;
  if (draw >= queue(stream).eagerness || !eligible(stream)) return false;
  run_head(stream);
  return true;
}

bool Order::eligible(int stream) const {
  const Queue& q = queue(stream);
  if (q.running || q.items.empty()) return false;
  return q.items.front().work || q.items.front().event.complete();
}

void Order::force_head(int stream) {
  const Item& head = queue(stream).items.front();
  const std::int64_t done = queue(stream).done;
  if (!head.work && !queue(stream).error && !head.event.complete()) {
    const Event event = head.event;
    const auto start = std::chrono::steady_clock::now();
    try {
      event.synchronize();
    } catch (...) {
      // The head rethrows the error when it runs.
      ZERO_CHECK(event.complete(), "test device: a wait failed before its event was complete");
    }
    queue(stream).waited_seconds +=
        std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  }
  if (queue(stream).done == done) run_head(stream);  // otherwise the wait has already run it
}

void Order::run_head(int stream) {
  Queue& q = queue(stream);
  Item item = std::move(q.items.front());
  q.items.pop_front();
  std::exception_ptr error;
  q.running = true;
  if (!q.error) {
    try {
      if (item.work) {
        run_work(item);
      } else {
        item.event.synchronize();
      }
    } catch (...) {
      error = cpu::current_error(item.what);
    }
  }
  item = {};
  q.running = false;
  ++q.done;
  if (error) {
    q.error = error;
    q.failed_at = q.done;
  }
}

}  // namespace zero::testing
