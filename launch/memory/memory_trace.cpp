// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#include "launch/memory/memory_trace.h"

#include <exception>
#include <utility>

#include "base/seconds_since.h"
#include "launch/telemetry/output.h"

namespace zero {
namespace {

/// Events that may wait to be written: 20 MiB of them.
constexpr std::size_t kMostWaiting = std::size_t{1} << 17;
constexpr std::chrono::milliseconds kBetweenWrites{100};

/// By the keys of a snapshot, "class/label".
BytesByLabel by_label(const MemorySnapshot& snapshot) {
  BytesByLabel charged;
  for (const auto& [key, bytes] : snapshot.labels) {
    for (const MemoryClass c : all_memory_classes()) {
      const std::string_view name = name_of(c);
      if (!key.starts_with(name) || key.size() <= name.size() || key[name.size()] != '/') continue;
      charged[{c, key.substr(name.size() + 1)}] = bytes;
    }
  }
  return charged;
}

}  // namespace

MemoryTrace::MemoryTrace(MemoryTraceOptions options)
    : file_(std::move(options)), thread_([this] { run(); }) {}

MemoryTrace::~MemoryTrace() {
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  stops_.notify_one();
  thread_.join();
  flush();
  with_file([this] { file_.end(seconds()); });
}

double MemoryTrace::seconds() const { return seconds_since(began_); }

MemoryRecord MemoryTrace::place() const {
  return {.seconds = seconds(), .step = step_, .phase = phase_};
}

void MemoryTrace::start(const MemorySnapshot& charged, std::int64_t device_bytes) {
  with_file([&] { file_.begin(by_label(charged), device_bytes); });
}

void MemoryTrace::units(const std::vector<std::string>& names) {
  with_file([&] {
    drain();
    file_.units(names);
  });
}

void MemoryTrace::at(std::int64_t step, std::string_view phase) {
  const std::lock_guard lock(mutex_);
  if (step == step_ && phase == phase_) return;
  step_ = step;
  phase_ = phase;
  if (records_.size() < kMostWaiting) records_.push_back(place());
}

void MemoryTrace::unit(std::string_view /*name*/, Phase phase) {
  // The head's lease is both; what follows is backward.
  at(step_, phase == Phase::both ? name_of(Phase::backward) : name_of(phase));
}

void MemoryTrace::record(const MemoryEvent& event) noexcept {
  try {
    const std::lock_guard lock(mutex_);
    if (missed_ > 0 || records_.size() >= kMostWaiting) {
      missed_sums_[{event.memory_class, std::string(event.label)}] += event.bytes;
      ++missed_;
      return;
    }
    MemoryRecord record = place();
    record.memory_class = event.memory_class;
    record.label = event.label;
    record.bytes = event.bytes;
    record.total = event.total;
    records_.push_back(std::move(record));
  } catch (const std::exception&) {  // no memory: the reader finds the gap by the totals
  }
}

void MemoryTrace::run() {
  std::unique_lock lock(mutex_);
  while (!stopping_) {
    stops_.wait_for(lock, kBetweenWrites, [this] { return stopping_; });
    lock.unlock();
    flush();
    lock.lock();
  }
}

void MemoryTrace::flush() noexcept {
  with_file([this] {
    drain();
    file_.flush();
  });
}

template <typename Work>
void MemoryTrace::with_file(const Work& work) noexcept {
  try {
    const std::lock_guard lock(file_mutex_);
    if (failed_) return;
    try {
      work();
    } catch (const std::exception& error) {
      failed_ = true;
      print_error("zero_train: warning: {}; the run goes on, the trace ends\n", error.what());
    }
  } catch (const std::exception&) {  // not even a lock, or a line
  }
}

void MemoryTrace::drain() {
  std::vector<MemoryRecord> records;
  BytesByLabel sums;
  std::int64_t missed = 0;
  MemoryRecord last;
  {
    const std::lock_guard lock(mutex_);
    records.swap(records_);
    sums.swap(missed_sums_);
    missed = std::exchange(missed_, 0);
    if (missed > 0) last = place();
  }
  for (const MemoryRecord& record : records) file_.write(record);
  if (missed > 0) file_.missed(missed, sums, last);
}

}  // namespace zero
