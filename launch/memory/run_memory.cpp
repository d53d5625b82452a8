// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#include "launch/memory/run_memory.h"

#include <fmt/format.h>

#include <exception>
#include <span>
#include <utility>

#include "base/seconds_since.h"
#include "collectives/host_values.h"
#include "device/memory_monitor.h"
#include "launch/config/train_config.h"
#include "launch/memory/memory_text.h"
#include "launch/process/quantity.h"
#include "launch/telemetry/instruments.h"
#include "launch/telemetry/output.h"

namespace zero {
namespace {

/// Steps between two questions of the ranks: each is a small collective.
constexpr std::int64_t kStepsBetweenQuestions = 10;
/// Asking a driver or /proc takes longer than the rest of a line.
constexpr std::chrono::milliseconds kBetweenCapacities{500};

}  // namespace

RunMemory::RunMemory(const Parts& parts) : parts_(parts) {
  const MemorySnapshot charged = parts.device.ledger().snapshot();
  next_ = {.now = charged.current,
           .peak = charged.current,
           .total = charged.total,
           .peak_total = charged.total};
  if (parts.instruments != nullptr) parts.instruments->memory(charged.current);
  trace([&](MemoryTraceFile& file) { file.begin(charged.labels, parts_.device.capacity().total); });
  parts.device.ledger().observe([this](const MemoryEvent& event) { hear(event); });
}

RunMemory::~RunMemory() {
  parts_.device.ledger().observe({});
  trace([&](MemoryTraceFile& file) { file.end(seconds_since(began_)); });
}

template <typename Work>
void RunMemory::trace(const Work& work) noexcept {
  const std::lock_guard lock(mutex_);
  if (parts_.trace == nullptr) return;
  try {
    work(*parts_.trace);
  } catch (const std::exception& error) {
    parts_.trace = nullptr;
    print_error("zero_train: warning: {}; the run goes on, the trace ends\n", error.what());
  }
}

void RunMemory::hear(const MemoryEvent& event) noexcept {
  trace([&](MemoryTraceFile& file) {
    place_.seconds = seconds_since(began_);
    file.write(place_, event);
  });
  const std::lock_guard lock(mutex_);
  next_.add(event);
  if (parts_.instruments != nullptr) parts_.instruments->memory(next_.now);
}

void RunMemory::know_units(std::vector<std::string> names) {
  units_ = std::move(names);
  trace([&](MemoryTraceFile& file) { file.units(units_); });
}

void RunMemory::at(std::int64_t step, std::string_view phase) {
  trace([&](MemoryTraceFile& file) {
    if (step == place_.step && phase == place_.phase) return;
    place_ = {seconds_since(began_), step, std::string(phase)};
    file.write(place_);
  });
}

void RunMemory::unit(std::string_view /*name*/, Phase phase) {
  // The head's lease is both; what follows is backward.
  at(place_.step, name_of(phase == Phase::both ? Phase::backward : phase));
}

std::optional<std::string> RunMemory::growth(std::int64_t step) {
  const MemoryLedger& ledger = parts_.device.ledger();
  if (steps_ <= kSteadyStep) {
    steady_ = ledger.snapshot();
    steady_step_ = step;
    return std::nullopt;
  }
  const std::int64_t most = parts_.config.run.memory_growth;
  const std::int64_t grown = line_.total - steady_.total;
  if (grown <= most) return std::nullopt;
  std::string text = fmt::format(
      "memory has grown by {} since step {}, to {}; run.memory_growth is {}", size_text(grown),
      std::exchange(steady_step_, step), size_text(line_.total), size_text(most));
  const MemorySnapshot before = std::exchange(steady_, ledger.snapshot());
  const std::vector<MemoryGrowth> labels = growth_between(before.labels, steady_.labels);
  if (!labels.empty()) {
    const MemoryGrowth& first = labels.front();
    text += fmt::format(": most of it {}, {}", labelled(first.memory_class, first.label, units_),
                        signed_size(first.bytes));
  }
  return text;
}

std::optional<std::string> RunMemory::after_step(std::int64_t step) {
  ++steps_;
  {
    const std::lock_guard lock(mutex_);
    line_ = next_;
    next_.peak = next_.now;
    next_.peak_total = next_.total;
  }
  if (parts_.config.run.memory_growth == 0) return std::nullopt;
  std::optional<std::string> grown = growth(step);
  if (grown) {
    grown_ = true;
    const int rank = parts_.ranks.rank();
    if (rank == 0) {
      parts_.console.line(fmt::format("warning: step {}: {}", step, *grown));
    } else {
      print_error("zero_train: warning: [rank {}] step {}: {}\n", rank, step, *grown);
    }
  }
  const bool asks = parts_.config.run.growth_action == TrainConfig::Growth::stop;
  if (asks && steps_ % kStepsBetweenQuestions == 0) ask_ranks();
  return grown;
}

void RunMemory::ask_ranks() {
  std::int64_t grown = grown_ ? 1 : 0;
  host_all_reduce(parts_.ranks, parts_.device, View::of(std::span(&grown, 1)), ReduceOp::max,
                  {"whether memory grows", {}});
  stops_ = grown > 0;
}

nlohmann::ordered_json RunMemory::json() {
  const auto now = std::chrono::steady_clock::now();
  if (now - asked_ > kBetweenCapacities) {
    const MemoryCapacity capacity = parts_.device.capacity();
    if (capacity.total > 0) next_.free = capacity.free;
    asked_ = now;
  }
  line_.free = next_.free;
  line_.reserved = parts_.device.reserved_bytes();
  return line_.json();
}

}  // namespace zero
