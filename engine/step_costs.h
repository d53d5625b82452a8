// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstddef>
#include <vector>

#include "engine/counted_mesh.h"
#include "engine/state_reads.h"
#include "engine/step_report.h"
#include "engine/waits.h"

namespace zero {

/// What an optimizer step costs in bytes sent and in time that compute waited. Traffic and waits of
/// evaluations, and traffic and waits for tiers of other calls between steps, belong to no step.
/// Where the device runs behind the host, a wait belongs to the step in which it has ended.
class StepCosts {
 public:
  /// All must outlive this.
  StepCosts(CountedMesh& mesh, Device& device, const Waits& waits)
      : mesh_(mesh), device_(device), waits_(waits) {}

  /// The first step starts here, with that many compute steps in a micro-batch.
  void begin(std::size_t compute_steps) {
    exposed_.assign(compute_steps, 0.0);
    tier_mark_ = for_tiers();
    mesh_.clear();
  }
  /// What is sent from here on belongs to the next step.
  void end_traffic(StepReport& report) {
    report.axes = pending();
    report.traffic = report.axes.total();
    mark_ = mesh_.traffic();
  }
  /// The step's time ends here. Subtracts reading.waited, the time that compute waited for a
  /// StateReader, from the exposed seconds.
  void end_time(StepReport& report, const StateReads::Cost& reading) {
    report.save_seconds = reading.seconds;
    report.tier_seconds = for_tiers() - tier_mark_;
    report.exposed_seconds = waited() - waited_mark_ - reading.waited;
    waited_mark_ = waited();
    tier_mark_ = for_tiers();
    last_exposed_ = exposed_;
    std::ranges::fill(exposed_, 0.0);
  }

  /// Calls `work`, and counts the compute stream's waits in it, but for those for tiers, as
  /// exposed by a compute step.
  template <typename Work>
  void expose(int compute_step, const Work& work) {
    const double before = waited();
    work();
    exposed_[static_cast<std::size_t>(compute_step)] += waited() - before;
  }
  /// Seconds per compute step in the last step.
  const std::vector<double>& exposed_by_use() const { return last_exposed_; }

  /// Excludes the traffic, and the waits for tiers, during its lifetime.
  class OutsideStep {
   public:
    explicit OutsideStep(StepCosts& costs)
        : costs_(costs), pending_(costs.pending()), for_tiers_(costs.for_tiers()) {}
    ~OutsideStep() {
      costs_.mark_ = costs_.mesh_.traffic().since(pending_);
      costs_.tier_mark_ += costs_.for_tiers() - for_tiers_;
    }
    OutsideStep(const OutsideStep&) = delete;
    OutsideStep& operator=(const OutsideStep&) = delete;

   private:
    StepCosts& costs_;
    MeshTraffic pending_;
    double for_tiers_;
  };
  void begin_evaluation() {
    before_evaluation_ = pending();
    waited_before_ = waited();
    tiers_before_ = for_tiers();
  }
  /// Call after the gathers that are repeated because of the evaluation.
  void end_evaluation() {
    mark_ = mesh_.traffic().since(before_evaluation_);
    waited_mark_ += waited() - waited_before_;
    tier_mark_ += for_tiers() - tiers_before_;
  }

 private:
  MeshTraffic pending() const { return mesh_.traffic().since(mark_); }
  /// Seconds that compute has waited, but for tiers.
  double waited() const {
    const double all = device_.compute().waited_seconds();
    return all - waits_.of_tiers().seconds();
  }
  /// Those for tiers, of the waits that the stream has counted.
  double for_tiers() const {
    static_cast<void>(device_.compute().waited_seconds());
    return waits_.of_tiers().seconds();
  }

  CountedMesh& mesh_;
  Device& device_;
  const Waits& waits_;
  MeshTraffic mark_;               ///< traffic that belongs to no pending step
  MeshTraffic before_evaluation_;  ///< of the pending step
  double waited_mark_ = 0;         ///< seconds that belong to no pending step
  double waited_before_ = 0;       ///< seconds at begin_evaluation()
  double tier_mark_ = 0;           ///< the same of waits for tiers
  double tiers_before_ = 0;
  std::vector<double> exposed_;       ///< per compute step, of the pending step
  std::vector<double> last_exposed_;  ///< of the last step
};

}  // namespace zero
