// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#include "launch/telemetry/instruments.h"

#include <fmt/format.h>

#include <algorithm>
#include <exception>

namespace zero {
namespace {

using Duration = std::chrono::duration<double>;

constexpr int kLooks = 5;  // the quickest counts

/// Spans that may wait unread; beyond that, finished ones are read, because marks hold GPU events.
constexpr std::size_t kUnread = 128;

}  // namespace

HostClock::HostClock(Stream& stream, Seconds seconds)
    : counted_(seconds), begin_(compare(stream)) {}

void HostClock::stop(Stream& stream) {
  end_ = compare(stream);
  seconds_ = seconds_to(end_.mark).value();
}

HostClock::Time HostClock::at(double seconds) const {
  const Duration host = end_.time - begin_.time;
  const bool scaled = seconds_ > 0 && counted_ == Seconds::of_host;
  const double rate = scaled ? host.count() / seconds_ : 1;
  return begin_.time + std::chrono::duration_cast<Time::duration>(Duration(seconds * rate));
}

double HostClock::error_seconds() const { return std::max(begin_.error, end_.error); }

HostClock::Comparison HostClock::compare(Stream& stream) {
  stream.synchronize();
  Comparison best;
  for (int look = 0; look < kLooks; ++look) {
    const Time before = std::chrono::steady_clock::now();
    const Mark mark = stream.mark();
    stream.synchronize();
    const Time after = std::chrono::steady_clock::now();
    const double error = Duration(after - before).count() / 2;
    if (look == 0 || error < best.error) best = {mark, before + (after - before) / 2, error};
  }
  return best;
}

template <typename Body>
void Instruments::try_to(const Body& body) noexcept {
  try {
    body();
  } catch (const std::exception&) {  // the next call meets a device's error too
    step_ = nullptr;
  }
}

Instruments::Instruments(const InstrumentOptions& options)
    : options_(options), trace_(options.trace ? options.trace_events : 1) {}

void Instruments::begin_step(std::int64_t step, Stream& compute) {
  const std::int64_t here = step - before_;
  const bool profiled = options_.profile && here > 1;
  const bool traced = options_.trace && here >= options_.trace_from &&
                      here < options_.trace_from + options_.trace_steps;
  if (!profiled && !traced) return;
  compute_ = &compute;
  step_ = std::make_shared<Step>(Step{HostClock(compute, options_.seconds), profiled, traced});
  if (traced) count_memory(true);
}

void Instruments::end_step(std::int64_t step) {
  if (!step_) return;
  leave_unit();
  HostClock& clock = step_->clock;
  clock.stop(*compute_);
  step_->over = true;
  if (step_->profiled) profile_.add_step(clock.seconds());
  if (step_->traced) {
    count_memory(false);
    const Time began = clock.at(0);
    if (origin_ == Time()) origin_ = began;
    trace_.steps.add(fmt::format("step {}", step), began, clock.at(clock.seconds()));
    trace_.clock_error = std::max(trace_.clock_error, clock.error_seconds());
  }
  // Gathers for the next step may still run: they count for this step, which issued them.
  settle_all();
  step_ = nullptr;
}

void Instruments::stop() {
  settle_all();
  step_ = nullptr;
}

void Instruments::ran(std::string_view what, Mark begin, Mark end) noexcept {
  try_to([&] {
    const std::string_view name = operation_ ? std::string_view(operation_->name) : what;
    add(work_, {.name = std::string(name),
                .begin = std::move(begin),
                .end = std::move(end),
                .of_operation = operation_.has_value()});
  });
}

void Instruments::waited(std::string_view meter, Mark begin, Mark end) noexcept {
  try_to([&] {
    add(work_, {.name = fmt::format("waiting for {}", meter.empty() ? "communication" : meter),
                .begin = std::move(begin),
                .end = std::move(end)});
  });
}

void Instruments::begin(const OpCost& cost) { operation_ = cost; }

void Instruments::end() noexcept {
  try_to([&] {
    if (step_ && step_->profiled && operation_)
      profile_.add(operation_->name, 0, operation_->flop, operation_->bytes);
    operation_.reset();
  });
}

void Instruments::leave_unit() {
  if (!unit_.empty()) add(units_, {.name = unit_, .begin = unit_began_, .end = compute_->mark()});
  unit_.clear();
}

void Instruments::memory(const BytesByClass& bytes) noexcept {
  try {
    const std::lock_guard lock(memory_mutex_);
    memory_ = bytes;
    if (counts_memory_) trace_.memory.add(std::chrono::steady_clock::now(), bytes);
  } catch (const std::exception&) {  // a moment is lost
  }
}

// A traced step's counters have values at its begin and at its end.
void Instruments::count_memory(bool counts) {
  const std::lock_guard lock(memory_mutex_);
  counts_memory_ = counts;
  trace_.memory.add(std::chrono::steady_clock::now(), memory_);
}

void Instruments::unit(std::string_view name, Phase phase) {
  if (!step_ || !step_->traced) return;
  leave_unit();
  unit_ = fmt::format("{} {}", name, name_of(phase));
  unit_began_ = compute_->mark();
}

void Instruments::collective(const CollectiveRecord& record, Mark begin, Mark end) noexcept {
  try_to([&] {
    add(communication_, {.name = call_name(record.operation, record.purpose),
                         .kind = std::string(name_of(record.operation)),
                         .begin = std::move(begin),
                         .end = std::move(end),
                         .bytes = record.total_bytes});
  });
}

void Instruments::add(Lane& lane, Span span) {
  if (!step_) return;
  span.step = step_;
  lane.spans.push_back(std::move(span));
  if (lane.spans.size() - lane.read > kUnread) read(lane);
}

void Instruments::read(Lane& lane) {
  for (; lane.read < lane.spans.size(); ++lane.read) {
    Span& span = lane.spans[lane.read];
    const std::optional<double> begin = span.step->clock.seconds_to(span.begin);
    const std::optional<double> end = span.step->clock.seconds_to(span.end);
    if (!begin || !end) return;
    span.seconds = {*begin, *end};
    span.begin = span.end = Mark();
  }
}

void Instruments::flush(Lane& lane) {
  read(lane);
  for (; lane.read > 0 && lane.spans.front().step->over; --lane.read) {
    keep(lane.spans.front(), lane);
    lane.spans.pop_front();
  }
}

void Instruments::keep(const Span& span, Lane& lane) {
  const auto [begin, end] = *span.seconds;
  const Step& step = *span.step;
  if (step.traced) {
    lane.track.add(span.name, step.clock.at(begin), step.clock.at(end), span.bytes);
  }
  if (!step.profiled || lane.profile == nullptr) return;
  if (span.of_operation) return lane.profile->add_seconds(span.name, end - begin);
  lane.profile->add(span.kind.empty() ? span.name : span.kind, end - begin, 0,
                    static_cast<double>(span.bytes));
}

void Instruments::settle_all() {
  for (Lane* lane : {&work_, &units_, &communication_}) flush(*lane);
}

}  // namespace zero
