// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <cstdint>
#include <mutex>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "launch/memory/memory_line.h"
#include "launch/memory/memory_trace_file.h"
#include "model/unit_listener.h"

namespace zero {

class Communicator;
class Console;
class Instruments;
struct TrainConfig;

/// What a run tells of its memory while it goes on: the log's "memory", run.memory_growth,
/// run.memory_trace and the counters of run.trace. Observes the device's ledger, whose charges come
/// from any thread; used by the rank's host thread. Must end behind the buffers of the run and
/// before the device.
///
/// In the trace an event stands when it is charged, a phase a tenth of a second later at most if
/// anything follows. A trace that cannot be written is told of on standard error, once; the run
/// goes on.
class RunMemory final : public UnitsOnlyListener {
 public:
  /// All must outlive the object; the last two may be null.
  struct Parts {
    const TrainConfig& config;
    Communicator& ranks;
    Device& device;
    Console& console;  ///< the first rank's; silent elsewhere
    MemoryTraceFile* trace = nullptr;
    Instruments* instruments = nullptr;
  };
  /// No other thread may charge the ledger meanwhile.
  explicit RunMemory(const Parts& parts);
  RunMemory(const RunMemory&) = delete;
  RunMemory& operator=(const RunMemory&) = delete;
  ~RunMemory() override;

  /// What hears of the model's units, for the trace. Null: there is none.
  UnitListener* listener() { return parts_.trace == nullptr ? nullptr : this; }
  /// Engine::unit_names(), before the first step.
  void know_units(std::vector<std::string> names);
  /// From here on memory is of this step (0: before the first) and phase.
  void at(std::int64_t step, std::string_view phase);

  /// Call behind each step. Tells what grew: the first rank on the console, others on standard
  /// error. Returns it, for the log. Collective where run.memory_growth_action is "stop".
  std::optional<std::string> after_step(std::int64_t step);
  /// The field "memory" of the line of the step that after_step() was called for.
  nlohmann::ordered_json json();
  /// Whether growth on a rank ends the run: the same on all ranks.
  bool stops() const { return stops_; }

  void unit(std::string_view name, Phase phase) override;

 private:
  void hear(const MemoryEvent& event) noexcept;
  /// Does `work` with the trace, if there is one; after its first failure there is none.
  template <typename Work>
  void trace(const Work& work) noexcept;
  std::optional<std::string> growth(std::int64_t step);
  void ask_ranks();

  Parts parts_;
  std::vector<std::string> units_{};

  std::mutex mutex_;   // of the trace, its place and next_'s bytes
  MemoryLine next_{};  // from the newest step on
  const std::chrono::steady_clock::time_point began_ = std::chrono::steady_clock::now();
  MemoryPlace place_{.phase = "setup"};

  MemoryLine line_{};                              // up to the newest step
  std::chrono::steady_clock::time_point asked_{};  // for the capacity
  std::int64_t steps_ = 0;                         // of this process
  MemorySnapshot steady_{};                        // growth is what lies above
  std::int64_t steady_step_ = 0;
  bool grown_ = false;  // on this rank
  bool stops_ = false;
};

}  // namespace zero
