// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#include "launch/memory/run_memory.h"

#include <fmt/format.h>

#include <span>
#include <utility>

#include "collectives/host_values.h"
#include "launch/config/train_config.h"
#include "launch/memory/memory_trace.h"
#include "launch/telemetry/instruments.h"
#include "launch/telemetry/output.h"

namespace zero {
namespace {

/// Steps between two questions of the ranks: each is a small collective.
constexpr std::int64_t kStepsBetweenQuestions = 10;
/// Asking a driver or /proc takes longer than the rest of a line.
constexpr std::chrono::milliseconds kBetweenCapacities{500};

}  // namespace

RunMemory::RunMemory(const Parts& parts) : parts_(parts), feed_(parts.device) {
  listener_ = parts.instruments;
  if (MemoryTrace* const trace = parts.trace; trace != nullptr) {
    trace->start(parts.device.ledger().snapshot(), parts.device.capacity().total);
    feed_.listen(
        [trace](const MemoryEvent& event, const BytesByClass& /*now*/) { trace->record(event); });
    if (listener_ == nullptr) listener_ = trace;
  }
  if (Instruments* const instruments = parts.instruments; instruments != nullptr) {
    instruments->tell_units(parts.trace);
    instruments->memory(parts.device.ledger().snapshot().current);
    feed_.listen([instruments](const MemoryEvent& /*event*/, const BytesByClass& now) {
      instruments->memory(now);
    });
  }
}

void RunMemory::know_units(std::vector<std::string> names) {
  if (parts_.trace != nullptr) parts_.trace->units(names);
  const std::int64_t most = parts_.config.run.memory_growth;
  if (most > 0) watch_.emplace(most, std::move(names), parts_.device);
}

void RunMemory::at(std::int64_t step, std::string_view phase) {
  if (parts_.trace != nullptr) parts_.trace->at(step, phase);
}

std::optional<std::string> RunMemory::after_step(std::int64_t step) {
  ++steps_;
  figures_ = feed_.take();
  if (!watch_) return std::nullopt;
  std::optional<std::string> grown = watch_->after_step(step, figures_.total);
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
  if (asked_ == std::chrono::steady_clock::time_point() || now - asked_ > kBetweenCapacities) {
    capacity_ = parts_.device.capacity();
    asked_ = now;
  }
  return memory_json(figures_, parts_.device.reserved_bytes(), capacity_);
}

}  // namespace zero
