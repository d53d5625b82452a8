// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "collectives/backends.h"
#include "launch/faults/fault_injector.h"

namespace zero::testing {

inline constexpr int kFaultyRank = 3;  // of 8

/// What the backend of a rank asks, of as many elements.
inline FaultInjector::Collective backend_call(Operation operation, std::string_view purpose,
                                              std::int64_t elements = 10) {
  return {.operation = operation, .purpose = purpose, .given = elements, .brought = elements};
}

/// A collective as a communicator with listeners passes it on: they hear first.
class ToldCollectives {
 public:
  FaultInjector::Answer meet(FaultInjector& faults, Operation operation, std::string_view purpose) {
    const CollectiveRecord record{.operation = operation, .purpose = std::string(purpose)};
    if (faults.listens()) {
      faults.submitting(record, *ranks_->implementation(), device_->communication());
    }
    return faults.alters_collectives() ? faults.alter(backend_call(operation, purpose))
                                       : FaultInjector::Answer::pass;
  }

 private:
  std::unique_ptr<Device> device_ = planning::open();
  std::unique_ptr<Communicator> ranks_ = planning::communicator(kFaultyRank, 8, BackendKind::host);
};

/// A run of a rank with two units, told to an injector as the trainer, the model and the backend
/// tell of it: gathers forward and backward, reductions backward, a save behind each second step, a
/// validation behind the last.
class ToldFaults {
 public:
  explicit ToldFaults(FaultInjector& faults) : faults_(faults) {}

  void before_steps() {
    faults_.phase(-1, "start");
    meet(Operation::all_gather, "hosts of the mesh");
    faults_.phase(-1, "load");
    faults_.phase(-1, "between steps");
  }
  void step(std::int64_t step) {
    faults_.phase(step, "forward");
    for (const char* unit : {"h.0", "h.1"}) pass(unit, Phase::forward);
    faults_.phase(step, "backward");
    for (const char* unit : {"h.1", "h.0"}) {
      pass(unit, Phase::backward);
      meet(Operation::reduce_scatter, unit);
    }
    faults_.phase(step, "update");
    meet(Operation::all_reduce, "gradient norm");
    faults_.phase(step, "between steps");
    if (step % 2 == 0) faults_.phase(step, "save");
    if (step % 2 == 0) faults_.phase(step, "between steps");
  }
  void validation(std::int64_t step) {
    faults_.phase(step, "validation");
    for (const char* unit : {"h.0", "h.1"}) pass(unit, Phase::forward);
    faults_.phase(step, "between steps");
  }
  void end(std::int64_t step) { faults_.phase(step, "end"); }
  void run(std::int64_t first, std::int64_t last) {
    before_steps();
    for (std::int64_t n = first; n <= last; ++n) step(n);
    validation(last);
    end(last);
  }
  /// "skip reduce_scatter(h.0)": what collectives were answered but pass.
  const std::vector<std::string>& answers() const { return answers_; }

 private:
  void pass(const char* unit, Phase phase) {
    meet(Operation::all_gather, unit);
    faults_.unit(unit, phase);
  }
  void meet(Operation operation, const char* purpose) {
    static constexpr std::array kNames{"pass", "skip", "resize", "flip given", "flip brought"};
    const FaultInjector::Answer answer = collectives_.meet(faults_, operation, purpose);
    if (answer == FaultInjector::Answer::pass) return;
    answers_.push_back(std::string(kNames.at(static_cast<std::size_t>(answer))) + " " +
                       call_name(operation, purpose));
  }

  FaultInjector& faults_;
  ToldCollectives collectives_;
  std::vector<std::string> answers_;
};

/// SIGKILL to the rank of these tests.
inline Fault kill_at(FaultPhase phase, std::int64_t step, const std::string& unit = "") {
  return {.kind = FaultKind::kill, .rank = kFaultyRank, .step = step, .phase = phase, .unit = unit};
}

}  // namespace zero::testing
