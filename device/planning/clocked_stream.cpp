// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#include "device/planning/clocked_stream.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "base/error.h"

namespace zero::planning {
namespace {

class VirtualEvent final : public Event::State {
 public:
  VirtualEvent(std::shared_ptr<VirtualClock> clock, double time)
      : clock_(std::move(clock)), time_(time) {}

  bool complete() override { return time_ <= clock_->host(); }
  void synchronize() override { clock_->host_reaches(time_); }
  double time() const { return time_; }

 private:
  std::shared_ptr<VirtualClock> clock_;
  double time_;
};

class VirtualMark final : public Mark::State {
 public:
  explicit VirtualMark(double time) : time_(time) {}

  std::optional<double> seconds_since(const State& earlier) const override {
    const auto* const other = dynamic_cast<const VirtualMark*>(&earlier);
    ZERO_CHECK(other != nullptr,
               "a mark of a virtual clock and one of a real clock have no clock in common; take "
               "both on one device");
    return time_ - other->time_;
  }

 private:
  double time_;
};

}  // namespace

void VirtualClock::communicates(const Span& span) {
  const double end = span.begin + span.working;
  if (options_.compute_share == 1 || span.working <= 0) return;
  if (!busy_.empty() && busy_.back().end == span.begin) {
    busy_.back().end = end;
  } else {
    busy_.push_back({span.begin, end});
  }
}

double VirtualClock::computed(double begin, double seconds) {
  while (!busy_.empty() && busy_.front().end <= begin) busy_.pop_front();
  const double share = options_.compute_share;
  double at = begin;
  for (const Period& period : busy_) {
    const double free = std::max(0.0, period.begin - at);
    if (seconds <= free) break;
    seconds -= free;
    at += free;
    const double done = (period.end - at) * share;
    if (seconds <= done) return at + seconds / share;
    seconds -= done;
    at = period.end;
  }
  return at + seconds;
}

bool ClockedStream::is_inline() const {
  return lane_ == WorkTimes::Lane::compute && clock_->options().inline_compute;
}

void ClockedStream::run(const std::function<Span(double begin)>& work) {
  const Span span = work(std::max(time_, clock_->host()));
  time_ = span.end;
  if (lane_ == WorkTimes::Lane::communication) clock_->communicates(span);
  if (is_inline()) {
    clock_->host_reaches(time_);
  } else {
    clock_->host_reaches(clock_->host() + clock_->options().submit_seconds);
  }
}

void ClockedStream::do_submit(std::string_view what, Work /*work*/) {
  const double seconds =
      clock_->options().times->seconds(lane_, what, std::exchange(announced_, 0));
  const bool compute = lane_ == WorkTimes::Lane::compute;
  run([&](double begin) {
    const double end = compute ? clock_->computed(begin, seconds) : begin + seconds;
    return Span{begin, end, end - begin};
  });
}

void ClockedStream::do_submit_host(std::string_view /*what*/, Work /*work*/) {
  run([](double begin) { return Span{begin, begin, 0}; });
}

void ClockedStream::do_wait(const Event& event) {
  const auto* const other = dynamic_cast<const VirtualEvent*>(event.state());
  if (other == nullptr) return;  // complete from the start
  const double begin = std::max(time_, clock_->host());
  if (other->time() <= begin) return;
  waited_ += other->time() - begin;
  time_ = other->time();
  if (is_inline()) clock_->host_reaches(time_);
}

Event ClockedStream::record() { return Event(std::make_shared<VirtualEvent>(clock_, time_)); }

void announce(Stream& stream, std::int64_t bytes) {
  if (auto* const clocked = dynamic_cast<ClockedStream*>(&stream)) clocked->announce(bytes);
}

Mark ClockedStream::mark() {
  return Mark(std::make_shared<VirtualMark>(std::max(time_, clock_->host())));
}

}  // namespace zero::planning
