// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <utility>

#include "device/cpu/inline_stream.h"
#include "device/stream_observer.h"

namespace zero::cpu {

/// An inline stream that tells an observer, which must outlive it, what has run and how long it
/// waited.
class ObservedStream final : public Stream {
 public:
  explicit ObservedStream(StreamObserver& observer) : observer_(observer) {}

  void submit(std::string_view what, Work work) override {
    const auto begin = Clock::now();
    stream_.submit(what, std::move(work));
    observer_.ran(what, begin, Clock::now());
  }
  Event record() override { return stream_.record(); }
  void wait(const Event& event) override {
    if (event.complete()) return stream_.wait(event);
    const auto begin = Clock::now();
    stream_.wait(event);
    observer_.waited(begin, Clock::now());
  }
  void synchronize() override { stream_.synchronize(); }
  double waited_seconds() const override { return stream_.waited_seconds(); }

 private:
  using Clock = std::chrono::steady_clock;

  InlineStream stream_;
  StreamObserver& observer_;
};

}  // namespace zero::cpu
