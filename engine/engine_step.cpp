// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cmath>
#include <limits>

#include "base/error.h"
#include "collectives/agreement.h"
#include "engine/engine_core.h"
#include "engine/replica_check.h"

namespace zero {
namespace {

/// The settings of one optimizer step that all updates have in common.
struct UpdateSettings {
  double learning_rate = 0;
  float gradient_scale = 1;
  std::int64_t step = 1;
};

/// Updates a run of elements within a piece of the states of a segment, and their compute copy, on
/// the compute stream.
void update(const Segment& segment, const PieceStates& states, const UpdateRun& run,
            Optimizer& optimizer, Stream& compute, const UpdateSettings& settings) {
  const std::int64_t at = run.begin - states.range.begin;
  UpdateArguments arguments;
  arguments.master = states.master.slice(at, run.count);
  for (std::size_t i = 0; i < static_cast<std::size_t>(optimizer.moments()); ++i) {
    arguments.moments[i] = states.moments[i].slice(at, run.count);
    if (states.scales[i].empty()) continue;
    const CodedMoment coded{static_cast<int>(i), states.moments[i], states.scales[i]};
    arguments.scales[i] = coded.slice(at, run.count).scales;
  }
  arguments.elements = run.elements;
  arguments.gradient = segment.finished_gradient().slice(run.begin, run.count);
  if (!states.copy.empty()) arguments.compute = states.copy.slice(at, run.count);
  arguments.learning_rate = settings.learning_rate * run.learning_rate_scale;
  arguments.weight_decay = run.weight_decay;
  arguments.gradient_scale = settings.gradient_scale;
  arguments.step = settings.step;
  optimizer.update(compute, arguments);
}

/// Updates the states of a unit, piece by piece.
void update(int index, const Unit& unit, StateWindows& windows, Optimizer& optimizer,
            Stream& compute, const UpdateSettings& settings) {
  while (windows.more(index)) {
    const PieceStates states = windows.next();
    for (const UpdateRun& run : unit.trainable()->runs) {
      for (const UpdateRun& part : run.within(states.range))
        update(*unit.trainable(), states, part, optimizer, compute, settings);
    }
    windows.changed();
  }
}

void check_options(const StepOptions& options, const EngineResources& resources, int rank) {
  using Limits = std::numeric_limits<float>;  // the update computes in fp32
  ZERO_CHECK(options.losses.empty() ||
                 static_cast<int>(options.losses.size()) == resources.accumulation_steps,
             "[rank {}] step: {} losses were given, expected one per micro-batch, {}", rank,
             options.losses.size(), resources.accumulation_steps);
  ZERO_CHECK(options.loss_scale >= Limits::min() && options.loss_scale <= Limits::max(),
             "[rank {}] step: loss_scale is {}, expected more than 0 ({:.2g} to {:.2g})", rank,
             options.loss_scale, Limits::min(), Limits::max());
  double scale = 1;
  for (const ParameterGroup& group : resources.options.groups)
    scale = std::max(scale, group.learning_rate_scale);
  ZERO_CHECK(options.learning_rate >= 0 && options.learning_rate * scale <= Limits::max(),
             "[rank {}] step: learning_rate is {}, expected a finite value of 0 or more, at most "
             "{:.2g}",
             rank, options.learning_rate, Limits::max() / scale);
}

}  // namespace

/// Ranks that go on with other values than their peers end here, all with the same error.
void EngineCore::require_given(std::int64_t sum, std::int64_t step, const StepOptions& options) {
  if (!device_.has_memory()) return;
  try {
    given_.require_equal(sum, step, options, world_, device_);
  } catch (...) {
    sealed_->progress.fail(std::current_exception());
    throw;
  }
  given_.clear();
}

/// Waits for all that moves states between their home and windows, and writes what the host has
/// changed. A rank whose disk has failed has lost its states: then all ranks throw the same
/// ValuesLost, and the engine cannot go on. Collective, but where no states live in a file.
void EngineCore::settle_states(std::string_view call) {
  Sealed& parts = *sealed_;
  if (!parts.home.asked()) return;
  try {
    parts.access.settle();
    parts.windows.ended().synchronize();
    if (!parts.home.may_fail()) return;
    const StepCosts::OutsideStep guard(costs_);
    agree(world_, device_, call, [&] {
      if (const std::string why = parts.home.failure(); !why.empty()) throw Error(why);
    });
  } catch (const AgreedError& error) {
    parts.progress.fail(std::make_exception_ptr(ValuesLost(error.what())));
    throw ValuesLost(error.what());
  } catch (...) {
    parts.progress.fail(std::current_exception());
    throw;
  }
}

StepReport EngineCore::step(const StepOptions& options) {
  Sealed& parts = usable("step");
  StepProgress& progress = parts.progress;
  progress.check_gradients_finished("step", "run forward and backward of all first");
  check_options(options, parts.resources, world_.rank());
  StepReport report;
  report.step = progress.steps() + 1;
  parts.coded.forget();
  parts.access.settle();
  parts.windows.begin({StateFields::all, StateFields::all});  // reads beside the sums
  if (progress.gradients_changed()) parts.reducer.recount_norm(units_);
  const StepSums::Totals sums =
      parts.sums.reduce({options.losses, parts.reducer.norm(), reads_.vote(), options.vote,
                         given_.hash(report.step, options), parts.home});
  require_given(sums.given, report.step, options);
  if (sums.lost > 0) settle_states("step");
  report.votes = sums.votes;
  report.loss = sums.loss.value();
  report.gradient_norm = std::sqrt(sums.squares.value()) / options.loss_scale;
  if (sums.squares.nonfinite() > 0 || sums.loss.nonfinite() > 0) {
    synchronize();
    const StepSums::Origin origin =
        parts.sums.find_nonfinite(options.losses, parts.state, parts.gradient_order);
    report.nonfinite = origin.name;
    report.nonfinite_rank = origin.rank;
    parts.windows.drop();
  }
  costs_.end_traffic(report);

  const float clip =
      report.nonfinite ? 1.0F : clip_factor(report.gradient_norm, options_.gradient_clipping);
  report.clipped = clip < 1.0F;
  world_.set_step(report.step + 1);  // later gathers belong to the next step
  const UpdateSettings settings{options.learning_rate,
                                static_cast<float>(clip / options.loss_scale),
                                progress.steps_done() + 1};
  Gathers::FirstGathers first;
  for (const int index : parts.order) {
    if (!report.nonfinite) {
      reads_.wait_before_update(static_cast<std::size_t>(index));
      update(index, unit_at(index), parts.windows, *optimizer_, device_.compute(), settings);
      parts.gathers.publish(unit_at(index), Gathers::Kind::trainable);
    }
    parts.gathers.begin_after_update(index, first);
  }
  progress.end_step(!report.nonfinite);
  costs_.end_time(report, reads_.take_cost());
  const int every = options_.replica_check_every;
  if (every > 0 && report.step % every == 0 && device_.has_memory()) check_replicas();
  if (!report.nonfinite) {  // otherwise the reader votes again in the next step
    const StepCosts::OutsideStep guard(costs_);
    reads_.counted(sums.reader_votes);
  }
  return report;
}

void EngineCore::check_replicas() {
  Sealed& parts = usable("check_replicas");
  synchronize();
  const StepCosts::OutsideStep guard(costs_);
  try {
    ReplicaCheck(parts.state, options_.compute).run(parts.progress.steps());
  } catch (const ReplicasDiffer&) {
    settle_states("check_replicas");  // lost states differ too
    throw;
  }
  settle_states("check_replicas");
}

}  // namespace zero
