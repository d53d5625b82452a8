// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <exception>
#include <span>
#include <string_view>
#include <utility>

#include "engine/gathers.h"
#include "engine/unit.h"

namespace zero {

/// Where an engine is in its optimizer step, and so which call may come next: the checks throw
/// zero::Error naming the rank, the call and what was expected, before anything is submitted.
class StepProgress {
 public:
  /// `gathers`, whose schedule gives the order, and `units` must outlive this.
  StepProgress(int rank, int accumulation_steps, const Gathers& gathers,
               std::span<const Unit> units)
      : rank_(rank), accumulation_steps_(accumulation_steps), gathers_(gathers), units_(units) {}

  /// No call is allowed once one has failed: rethrows its error.
  void check_usable() const {
    if (failure_) std::rethrow_exception(failure_);
  }
  void fail(std::exception_ptr error) { failure_ = std::move(error); }

  /// Whether the next compute step is this use of the unit.
  void check_enter(UnitId unit, bool gradients) const;
  void check_between_leases(std::string_view call) const;
  void check_between_steps(std::string_view call) const;
  /// Whether gradients are finished and not used yet; `advice` ends the message.
  void check_gradients_finished(std::string_view call, std::string_view advice) const;
  void check_evaluation(bool on) const;

  /// The next compute step of the schedule; the leased one during a lease.
  int compute_step() const { return compute_step_; }
  /// Micro-batches finished in this optimizer step.
  int micro_batch() const { return micro_batch_; }
  int accumulation_steps() const { return accumulation_steps_; }
  bool leased() const { return leased_; }
  void begin_lease() { leased_ = true; }
  void end_lease() { leased_ = false; }
  /// To the next compute step. Returns whether a micro-batch begins there that needs no step().
  bool advance();

  /// Finished gradients were changed from outside: the norm must be recomputed.
  void change_gradients() { gradients_changed_ = true; }
  bool gradients_changed() const { return gradients_changed_; }

  void end_step(bool updated);
  void restore(std::int64_t done, std::int64_t skipped) {
    steps_done_ = done;
    steps_skipped_ = skipped;
  }
  std::int64_t steps_done() const { return steps_done_; }
  /// Those whose update was skipped.
  std::int64_t steps_skipped() const { return steps_skipped_; }
  std::int64_t steps() const { return steps_done_ + steps_skipped_; }

 private:
  int rank_;
  int accumulation_steps_;
  const Gathers& gathers_;
  std::span<const Unit> units_;
  int compute_step_ = 0;
  int micro_batch_ = 0;
  bool leased_ = false;
  bool gradients_changed_ = false;
  std::int64_t steps_done_ = 0;
  std::int64_t steps_skipped_ = 0;
  std::exception_ptr failure_;
};

}  // namespace zero
