// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#include "launch/memory/memory_trace.h"

#include <exception>
#include <utility>

#include "base/seconds_since.h"
#include "launch/telemetry/output.h"

namespace zero {

MemoryTrace::MemoryTrace(MemoryTraceOptions options) : file_(std::move(options)) {}

MemoryTrace::~MemoryTrace() {
  with_file([this] { file_.end(seconds_since(began_)); });
}

void MemoryTrace::start(const MemorySnapshot& charged, std::int64_t device_bytes) {
  with_file([&] { file_.begin(charged.labels, device_bytes); });
}

void MemoryTrace::units(const std::vector<std::string>& names) {
  with_file([&] { file_.units(names); });
}

void MemoryTrace::at(std::int64_t step, std::string_view phase) {
  with_file([&] {
    if (step == place_.step && phase == place_.phase) return;
    place_ = {seconds_since(began_), step, std::string(phase)};
    file_.write(place_);
  });
}

void MemoryTrace::unit(std::string_view /*name*/, Phase phase) {
  // The head's lease is both; what follows is backward.
  at(place_.step, phase == Phase::both ? name_of(Phase::backward) : name_of(phase));
}

void MemoryTrace::record(const MemoryEvent& event) noexcept {
  with_file([&] {
    place_.seconds = seconds_since(began_);
    file_.write(place_, event);
  });
}

void MemoryTrace::flush() noexcept {
  with_file([this] { file_.flush(); });
}

template <typename Work>
void MemoryTrace::with_file(const Work& work) noexcept {
  try {
    const std::lock_guard lock(mutex_);
    if (failed_) return;
    failed_ = true;
    try {
      work();
      failed_ = false;
    } catch (const std::exception& error) {
      print_error("zero_train: warning: {}; the run goes on, the trace ends\n", error.what());
    }
  } catch (const std::exception&) {  // not even a lock, or a line
  }
}

}  // namespace zero
