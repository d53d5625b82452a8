// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <utility>

#include "device/stream_observer.h"

namespace zero {

/// Passes all work on to `stream` and tells an observer, while it listens, between which marks of
/// it each piece runs, and each wait. Both must outlive this.
class ObservedStream final : public Stream {
 public:
  ObservedStream(Stream& stream, StreamObserver& observer) : stream_(stream), observer_(observer) {}

  void submit(std::string_view what, Work work) override {
    if (!observer_.listens()) return stream_.submit(what, std::move(work));
    const Mark begin = mark();
    stream_.submit(what, std::move(work));
    observer_.ran(what, begin, mark());
  }
  void submit_host(std::string_view what, Work work) override {
    if (!observer_.listens()) return stream_.submit_host(what, std::move(work));
    const Mark begin = mark();
    stream_.submit_host(what, std::move(work));
    observer_.ran(what, begin, mark());
  }
  bool enqueues() const override { return stream_.enqueues(); }
  Event record() override { return stream_.record(); }
  Mark mark() override { return stream_.mark(); }
  void wait(const Event& event) override {
    if (!observer_.listens() || event.complete()) return stream_.wait(event);
    const Mark begin = mark();
    stream_.wait(event);
    observer_.waited(begin, mark());
  }
  void synchronize() override { stream_.synchronize(); }
  double waited_seconds() const override { return stream_.waited_seconds(); }
  Stream& undecorated() override { return stream_.undecorated(); }

 private:
  Stream& stream_;
  StreamObserver& observer_;
};

}  // namespace zero
