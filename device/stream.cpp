// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#include "device/stream.h"

#include <atomic>
#include <chrono>

#include "base/error.h"

namespace zero {
namespace {

/// A timestamped point that host code in the stream marks as passed, by the host's clock.
class HostMark final : public Mark::State {
 public:
  void pass() { at_.store(Clock::now().time_since_epoch().count(), std::memory_order_release); }

  std::optional<double> seconds_since(const State& earlier) const override {
    const auto* const other = dynamic_cast<const HostMark*>(&earlier);
    ZERO_CHECK(other != nullptr,
               "marks of streams of two devices have no clock in common; take both on one device");
    const Clock::rep begin = other->at_.load(std::memory_order_acquire);
    const Clock::rep end = at_.load(std::memory_order_acquire);
    if (begin == 0 || end == 0) return std::nullopt;
    return std::chrono::duration<double>(Clock::duration(end - begin)).count();
  }

 private:
  using Clock = std::chrono::steady_clock;
  std::atomic<Clock::rep> at_{0};  // 0: not yet passed
};

}  // namespace

StreamListener* Stream::active_listener() const {
  return listener_ != nullptr && listener_->listens() ? listener_ : nullptr;
}

Stream::Begun Stream::begin_work() {
  StreamListener* const listener = active_listener();
  return {listener, listener != nullptr ? mark() : Mark()};
}

void Stream::end_work(std::string_view what, const Begun& begun) {
  if (begun.listener == nullptr || begun.listener != listener_) return;
  listener_->ran(what, begun.begin, mark());
}

void Stream::submit(std::string_view what, Work work) {
  const Begun begun = begin_work();
  do_submit(what, std::move(work));
  end_work(what, begun);
}

void Stream::submit_host(std::string_view what, Work work) {
  const Begun begun = begin_work();
  do_submit_host(what, std::move(work));
  end_work(what, begun);
}

template <typename Wait>
void Stream::run_wait(const Event& event, std::string_view meter, const Wait& wait) {
  StreamListener* const listener = active_listener();
  if (listener == nullptr || event.complete()) return wait();
  const Mark begin = mark();
  wait();
  if (listener_ == listener) listener->waited(meter, begin, mark());
}

void Stream::wait(const Event& event) {
  run_wait(event, {}, [&] { do_wait(event); });
}

void Stream::wait(const Event& event, const WaitMeter& meter) {
  run_wait(event, meter.what(), [&] { do_wait_metered(event, meter); });
}

Mark Stream::mark() {
  auto state = std::make_shared<HostMark>();
  do_submit_host("mark", [state] { state->pass(); });
  return Mark(state);
}

}  // namespace zero
