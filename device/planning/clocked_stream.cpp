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
  VirtualEvent(std::shared_ptr<VirtualClock> clock, VirtualTime time)
      : clock_(std::move(clock)), time_(std::move(time)) {}

  bool complete() override { return time() <= clock_->host(); }
  void synchronize() override { clock_->host_reaches(time()); }
  double time() const { return time_.seconds(); }

 private:
  std::shared_ptr<VirtualClock> clock_;
  VirtualTime time_;
};

class VirtualMark final : public Mark::State {
 public:
  explicit VirtualMark(VirtualTime time) : time_(std::move(time)) {}

  std::optional<double> seconds_since(const State& earlier) const override {
    const auto* const other = dynamic_cast<const VirtualMark*>(&earlier);
    ZERO_CHECK(other != nullptr,
               "a mark of a virtual clock and one of a real clock have no clock in common; take "
               "both on one device");
    return time_.seconds() - other->time_.seconds();
  }

 private:
  VirtualTime time_;
};

}  // namespace

VirtualTime VirtualClock::communicates(const Span& span, double earliest) {
  const double worked = span.begin + span.working;
  if (options_.inline_compute) {
    communication_.push_back(std::make_shared<Communication>(
        Communication{earliest, span.begin, worked, span.end, span.transfer_share}));
    return {earliest, communication_.back()};
  }
  if (options_.compute_share == 1 || span.working <= 0) return span.end;
  if (!communication_.empty() && communication_.back()->end == span.begin) {
    communication_.back()->worked = communication_.back()->end = worked;
  } else {
    communication_.push_back(
        std::make_shared<Communication>(Communication{earliest, span.begin, worked, worked}));
  }
  return span.end;
}

double VirtualClock::computed(double begin, double seconds) {
  while (!communication_.empty() && communication_.front()->end <= begin)
    communication_.pop_front();
  double at = begin;
  for (std::size_t i = 0; i < communication_.size(); ++i) {
    Communication& piece = *communication_[i];
    const double free = std::max(0.0, piece.begin - at);
    if (seconds <= free) break;
    seconds -= free;
    at += free;
    if (at < piece.worked) {
      const double share = options_.compute_share;
      const double done = (piece.worked - at) * share;
      if (seconds <= done) return at + seconds / share;
      seconds -= done;
      at = piece.worked;
    }
    if (piece.end <= at) continue;
    // The transfer goes on beside compute at its share, and then at its full rate.
    const double left = piece.end - at;
    const double beside = left / piece.transfer_share;
    const double done = beside * options_.waiting_share;
    const bool outlasts = seconds < done;
    const double taken = outlasts ? seconds / options_.waiting_share : beside;
    piece.end = at + (outlasts ? left + taken * (1 - piece.transfer_share) : beside);
    put_off_behind(i);
    if (outlasts) return at + taken;
    seconds -= done;
    at = piece.end;
  }
  return at + seconds;
}

void VirtualClock::put_off_behind(std::size_t i) {
  for (double end = communication_[i]->end; ++i < communication_.size();) {
    Communication& piece = *communication_[i];
    const double later = std::max(piece.earliest, end) - piece.begin;
    if (later <= 0) return;
    piece.begin += later;
    piece.worked += later;
    piece.end += later;
    end = piece.end;
  }
}

bool ClockedStream::is_inline() const {
  return lane_ == WorkTimes::Lane::compute && clock_->options().inline_compute;
}

void ClockedStream::run(const std::function<Span(double begin)>& work) {
  const double earliest = std::max(time_.fixed(), clock_->host());
  const double begin = std::max(time(), earliest);
  const Span span = work(begin);
  time_ = lane_ == WorkTimes::Lane::communication
              ? clock_->communicates(span, span.begin > begin ? span.begin : earliest)
              : span.end;
  if (is_inline()) {
    clock_->host_reaches(time());
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
  const double begin = std::max(time(), clock_->host());
  if (other->time() <= begin) return;
  waited_ += other->time() - begin;
  time_ = time_.not_before(other->time());
  if (is_inline()) clock_->host_reaches(time());
}

Event ClockedStream::record() { return Event(std::make_shared<VirtualEvent>(clock_, time_)); }

void announce(Stream& stream, std::int64_t bytes) {
  if (auto* const clocked = dynamic_cast<ClockedStream*>(&stream)) clocked->announce(bytes);
}

Mark ClockedStream::mark() {
  return Mark(std::make_shared<VirtualMark>(time_.not_before(clock_->host())));
}

}  // namespace zero::planning
