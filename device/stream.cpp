// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#include "device/stream.h"

#include <atomic>
#include <chrono>

#include "base/error.h"

namespace zero {
namespace {

/// A point that host code tells it has come to, by the host's clock.
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
  std::atomic<Clock::rep> at_{0};  // ahead
};

}  // namespace

Mark Stream::mark() {
  auto state = std::make_shared<HostMark>();
  submit_host("mark", [state] { state->pass(); });
  return Mark(state);
}

}  // namespace zero
