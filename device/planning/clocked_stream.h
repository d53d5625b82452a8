// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <string_view>
#include <utility>

#include "device/planning/clock.h"
#include "device/stream.h"

namespace zero::planning {

/// A piece of work of the communication stream. Its times are those if no more compute is
/// submitted: compute beside the transfer puts them off.
struct Communication {
  double earliest = 0;  ///< begins then, or when the piece before it ends
  double begin = 0;
  double worked = 0;  ///< until then it takes of compute's speed; then its transfer goes on alone
  double end = 0;
  double transfer_share = 1;  ///< of the transfer's rate that is left while compute works
};

/// A time of a stream: fixed, or the end of a piece of communication if that is later.
class VirtualTime {
 public:
  VirtualTime(double fixed = 0, std::shared_ptr<const Communication> behind = nullptr)
      : fixed_(fixed), behind_(std::move(behind)) {}

  /// As far as it is known: final once compute has reached it.
  double seconds() const { return behind_ ? std::max(fixed_, behind_->end) : fixed_; }
  double fixed() const { return fixed_; }
  VirtualTime not_before(double time) const { return {std::max(fixed_, time), behind_}; }

 private:
  double fixed_;
  std::shared_ptr<const Communication> behind_;
};

/// The virtual time of one planning device: that of its host thread, and the work of its
/// communication stream. Shared by its streams, events and marks.
class VirtualClock {
 public:
  explicit VirtualClock(const ClockOptions& options) : options_(options) {}

  const ClockOptions& options() const { return options_; }
  double host() const { return host_; }
  void host_reaches(double time) { host_ = host_ < time ? time : host_; }
  /// The communication stream works as in `span`, and could from `earliest` on if the work before
  /// it were over; spans ascend. Returns the end.
  VirtualTime communicates(const Span& span, double earliest);
  /// When compute of `seconds`, alone on the device, ends if it begins at `begin`. Calls ascend.
  /// Takes time in proportion to the pieces of communication under way.
  double computed(double begin, double seconds);

 private:
  /// Puts off the pieces behind the i-th, which has been put off itself.
  void put_off_behind(std::size_t i);

  ClockOptions options_;
  double host_ = 0;
  std::deque<std::shared_ptr<Communication>> communication_;  // that ends after compute's time
};

/// A stream that runs nothing: work advances its virtual time by the seconds that WorkTimes gives.
/// An event has the time at which it is recorded; a wait for a later event moves the stream there.
class ClockedStream final : public Stream {
 public:
  ClockedStream(WorkTimes::Lane lane, std::shared_ptr<VirtualClock> clock)
      : lane_(lane), clock_(std::move(clock)) {}

  Event record() override;
  Mark mark() override;
  void synchronize() override { clock_->host_reaches(time()); }
  double waited_seconds() const override { return waited_; }
  void announce(std::int64_t bytes) { announced_ = bytes; }

  /// The virtual time up to which this stream has work.
  double time() const { return time_.seconds(); }
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
  VirtualTime time_;
  double waited_ = 0;
  std::int64_t announced_ = 0;  // bytes of the next work
};

}  // namespace zero::planning
