// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#include "launch/instruments.h"

#include <fmt/format.h>

#include <new>

namespace zero {
namespace {

double seconds(StreamObserver::Time begin, StreamObserver::Time end) {
  return std::chrono::duration<double>(end - begin).count();
}

constexpr unsigned kProfile = 1;
constexpr unsigned kTrace = 2;
constexpr std::string_view kWaiting = "waiting for communication";

}  // namespace

template <typename Body>
void Instruments::keep(const Body& body) noexcept {
  try {
    body();
  } catch (const std::bad_alloc&) {
    profiling_ = false;
    tracing_ = false;
  }
}

Instruments::Instruments(const InstrumentOptions& options)
    : options_(options), trace_(options.trace ? options.trace_events : 1) {}

void Instruments::begin_step(std::int64_t step) {
  step_began_ = std::chrono::steady_clock::now();
  profiling_ = options_.profile && step > 1;
  tracing_ = options_.trace && step >= options_.trace_from &&
             step < options_.trace_from + options_.trace_steps;
  if (tracing_ && origin_ == Time()) origin_ = step_began_;
}

void Instruments::end_step(std::int64_t step) {
  leave_unit();
  const auto now = std::chrono::steady_clock::now();
  if (profiling_) profile_.add_step(seconds(step_began_, now));
  if (tracing_) trace_.steps.add(fmt::format("step {}", step), step_began_, now);
  // Gathers for the next step may still run: they belong to this one, which issued them.
}

void Instruments::stop() {
  profiling_ = false;
  tracing_ = false;
}

void Instruments::ran(std::string_view what, Time begin, Time end) noexcept {
  if (what == "mark") return;
  keep([&] {
    const std::string_view name = operation_ ? std::string_view(operation_->name) : what;
    if (tracing_) trace_.compute.add(name, begin, end);
    if (!profiling_) return;
    if (operation_) {
      operation_seconds_ += seconds(begin, end);
    } else {
      profile_.add(name, seconds(begin, end), 0, 0);
    }
  });
}

void Instruments::waited(Time begin, Time end) noexcept {
  keep([&] {
    if (tracing_) trace_.compute.add(kWaiting, begin, end);
    if (profiling_) profile_.add(kWaiting, seconds(begin, end), 0, 0);
  });
}

void Instruments::begin(const OpCost& cost) {
  operation_ = cost;
  operation_seconds_ = 0;
}

void Instruments::end() noexcept {
  keep([&] {
    if (profiling_ && operation_)
      profile_.add(operation_->name, operation_seconds_, operation_->flop, operation_->bytes);
    operation_.reset();
  });
}

void Instruments::leave_unit() {
  if (!unit_.empty() && tracing_) {
    trace_.units.add(unit_, unit_began_, std::chrono::steady_clock::now());
  }
  unit_.clear();
}

void Instruments::unit(std::string_view name, Phase phase) {
  leave_unit();
  if (!tracing_) return;
  unit_ = fmt::format("{} {}", name, phase == Phase::forward ? "forward" : "backward");
  unit_began_ = std::chrono::steady_clock::now();
}

unsigned Instruments::keeps() const noexcept {
  return (profiling_ ? kProfile : 0U) | (tracing_ ? kTrace : 0U);
}

void Instruments::collective(const CollectiveRun& run) noexcept {
  keep([&] {
    if ((run.kept & kTrace) != 0) trace_.communication.add(run.name, run.begin, run.end, run.bytes);
    if ((run.kept & kProfile) != 0)
      collectives_.add(run.name.substr(0, run.name.find('(')), seconds(run.begin, run.end), 0,
                       static_cast<double>(run.bytes));
  });
}

}  // namespace zero
