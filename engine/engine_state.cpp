// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#include <array>

#include "engine/engine_core.h"

namespace zero {
namespace {

constexpr std::string_view kChangeOfGradients =
    "change a gradient after the last one's backward and before step(), when it is finished and "
    "not used yet";

constexpr std::array kAllParameters = {Gathers::Kind::frozen, Gathers::Kind::trainable};

}  // namespace

const ModelState& EngineCore::finished_states(std::string_view call) {
  Sealed& parts = usable(call);
  synchronize();
  return parts.state;
}

const ModelState& EngineCore::finished_values(std::string_view call) {
  const ModelState& states = finished_states(call);
  require_values(call);
  return states;
}

void EngineCore::require_values(std::string_view call) const {
  ZERO_CHECK(
      device_.has_memory(),
      "[rank {}] {}: the device \"{}\" has no memory, so there are no values; call this of an "
      "engine on the device of a run",
      world_.rank(), call, device_.name());
}

void EngineCore::attach(StateReader* reader) {
  if (reader != nullptr) usable("attach").progress.check_between_steps("attach");
  if (reads_.reader() != nullptr && reads_.reader() != reader) reads_.reader()->replaced();
  reads_.attach(reader, units_.size());
}

/// An error of the reader leaves this rank behind the others, so it fails the engine.
void EngineCore::finish_reads(std::string_view call) {
  StepProgress& progress = usable(call).progress;
  progress.check_between_leases(call);
  try {
    reads_.finish();
  } catch (...) {
    progress.fail(std::current_exception());
    throw;
  }
}

/// Waits for all work that uses the states, which are about to change. Collective.
void EngineCore::begin_change(std::string_view call) {
  finish_reads(call);
  synchronize();
  reads_.synchronize();
}

void EngineCore::set_state(const LogicalTensor& tensor, std::int64_t begin, const View& values) {
  Sealed& parts = usable("set_state");
  parts.progress.check_between_steps("set_state");
  const ModelState::Parameter parameter = parts.state.find(tensor);
  require_values("set_state");
  ZERO_CHECK(tensor.kind != StateKind::gradient,
             "[rank {}] set_state: \"{}\" is a gradient; use write()", world_.rank(), tensor.name);
  ZERO_CHECK(reads_.finished(),
             "[rank {}] set_state: the attached reader has rounds left; call finish_reads() first, "
             "on all ranks",
             world_.rank());
  synchronize();
  reads_.synchronize();
  parts.state.set(*parameter.unit, parameter.index, tensor.kind, begin, values);
}

void EngineCore::restore(std::int64_t steps_done, std::int64_t steps_skipped) {
  Sealed& parts = usable("restore");
  parts.progress.check_between_steps("restore");
  ZERO_CHECK(steps_done >= 0 && steps_skipped >= 0,
             "[rank {}] restore: {} steps done and {} skipped, expected 0 or more", world_.rank(),
             steps_done, steps_skipped);
  begin_change("restore");
  given_.add_restore(steps_done, steps_skipped);
  parts.coded.forget();
  parts.progress.restore(steps_done, steps_skipped);
  world_.set_step(parts.progress.steps() + 1);
}

void EngineCore::initialise() {
  Sealed& parts = usable("initialise");
  parts.progress.check_between_steps("initialise");
  begin_change("initialise");
  const StepCosts::OutsideStep guard(costs_);
  parts.sharding->wait_for_peers("initialise");
  for (Unit& unit : units_) {
    for (Segment& segment : unit.segments) {
      for (const auto& states : {segment.moments, segment.scales}) {
        for (const View& state : states) device_.kernels().zero(device_.compute(), state);
      }
    }
    unit.initialise(device_, options_.seed);
  }
  for (const Gathers::Kind kind : kAllParameters) publish_all(kind);
  parts.gathers.begin_micro_batch();
  restore(0, 0);
}

void EngineCore::write(std::string_view name, StateKind kind, const View& values) {
  Sealed& parts = usable("write");
  const ModelState::Parameter parameter = parts.state.find(name, kind, values);
  if (kind == StateKind::parameter) parts.progress.check_between_steps("write");
  if (kind == StateKind::gradient)
    parts.progress.check_gradients_finished("write", kChangeOfGradients);
  require_values("write");
  begin_change("write");
  given_.add_write(name, kind, values);
  parts.state.set(*parameter.unit, parameter.index, kind, 0, values);
  if (kind == StateKind::parameter) publish_parameters();
  if (kind == StateKind::gradient) parts.progress.change_gradients();
}

void EngineCore::publish_all(Gathers::Kind kind) {
  for (const int index : sealed_->order) sealed_->gathers.publish(unit_at(index), kind);
}

void EngineCore::publish_gradients() {
  Sealed& parts = usable("publish_gradients");
  parts.progress.check_gradients_finished("publish_gradients", kChangeOfGradients);
  synchronize();
  const StepCosts::OutsideStep guard(costs_);
  for (const int index : parts.order) {
    Unit& unit = unit_at(index);
    if (Segment* segment = unit.trainable(); segment != nullptr)
      parts.sharding->finish_gradient(*segment, {unit.name, {}});
  }
  device_.communication().synchronize();
  parts.progress.change_gradients();
}

void EngineCore::publish_parameters() {
  Sealed& parts = usable("publish_parameters");
  parts.progress.check_between_steps("publish_parameters");
  begin_change("publish_parameters");
  const StepCosts::OutsideStep guard(costs_);
  parts.sharding->wait_for_peers("publish_parameters");
  for (const int index : parts.order) {
    Unit& unit = unit_at(index);
    for (Segment& segment : unit.segments) {
      if (segment.trainable)
        parts.sharding->spread_states(segment.master, segment, {unit.name, {}});
    }
    device_.communication().synchronize();
    for (Segment& segment : unit.segments) {
      if (segment.trainable && options_.compute != DType::fp32) {
        device_.kernels().convert(device_.compute(), segment.master, segment.own);
      }
      if (!segment.trainable) parts.sharding->spread_states(segment.full, segment, {unit.name, {}});
    }
    for (const Gathers::Kind kind : kAllParameters) parts.gathers.publish(unit, kind);
  }
  parts.gathers.begin_micro_batch();
}

}  // namespace zero
