// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <string_view>

#include "device/planning/clock.h"
#include "device/stream.h"

namespace zero::planning {

/// The virtual time of one planning device: that of its host thread, and the periods in which its
/// communication stream works. Shared by its streams, events and marks.
class VirtualClock {
 public:
  explicit VirtualClock(const ClockOptions& options) : options_(options) {}

  const ClockOptions& options() const { return options_; }
  double host() const { return host_; }
  void host_reaches(double time) { host_ = host_ < time ? time : host_; }
  /// The communication stream works as in `span`; spans ascend.
  void communicates(const Span& span);
  /// When compute of `seconds`, alone on the device, ends if it begins at `begin`. Calls ascend.
  double computed(double begin, double seconds);

 private:
  struct Period {
    double begin;
    double end;
  };

  ClockOptions options_;
  double host_ = 0;
  std::deque<Period> busy_;  // those that end after compute's time
};

/// A stream that runs nothing: work advances its virtual time by the seconds that WorkTimes gives.
/// An event has the time at which it is recorded; a wait for a later event moves the stream there.
class ClockedStream final : public Stream {
 public:
  ClockedStream(WorkTimes::Lane lane, std::shared_ptr<VirtualClock> clock)
      : lane_(lane), clock_(std::move(clock)) {}

  Event record() override;
  Mark mark() override;
  void synchronize() override { clock_->host_reaches(time_); }
  double waited_seconds() const override { return waited_; }
  void announce(std::int64_t bytes) { announced_ = bytes; }

  /// The virtual time up to which this stream has work.
  double time() const { return time_; }
  /// Submits work; work(begin) gives its time, `begin` the time at which the stream reaches it.
  void run(const std::function<Span(double begin)>& work);

 private:
  void do_submit(std::string_view what, Work work) override;
  /// Takes no time.
  void do_submit_host(std::string_view what, Work work) override;
  void do_wait(const Event& event) override;
  /// Whether the host thread runs this stream's work itself.
  bool is_inline() const;

  WorkTimes::Lane lane_;
  std::shared_ptr<VirtualClock> clock_;
  double time_ = 0;
  double waited_ = 0;
  std::int64_t announced_ = 0;  // bytes of the next work
};

}  // namespace zero::planning
