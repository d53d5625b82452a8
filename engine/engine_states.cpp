// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#include "engine/engine_states.h"

#include <array>

#include "base/sign_of_life.h"
#include "engine/engine_core.h"

namespace zero {
namespace {

constexpr std::string_view kChangeOfGradients =
    "change a gradient after the last one's backward and before step(), when it is finished and "
    "not used yet";

constexpr std::array kAllParameters = {Gathers::Kind::frozen, Gathers::Kind::trainable};

}  // namespace

/// The states behind all submitted work.
const ModelState& EngineStates::finished(std::string_view call) {
  EngineCore::Sealed& parts = core_.usable(call);
  core_.synchronize();
  return parts.state;
}

/// Likewise, for a call that gives values.
const ModelState& EngineStates::finished_values(std::string_view call) {
  const ModelState& states = finished(call);
  require_values(call);
  return states;
}

/// For a call that takes or gives values: throws on a device without memory.
void EngineStates::require_values(std::string_view call) const {
  ZERO_CHECK(
      core_.device_.has_memory(),
      "[rank {}] {}: the device \"{}\" has no memory, so there are no values; call this of an "
      "engine on the device of a run",
      core_.world_.rank(), call, core_.device_.name());
}

/// An error of the reader leaves this rank behind the others, so it fails the engine.
void EngineStates::finish_reads(std::string_view call) {
  StepProgress& progress = core_.usable(call).progress;
  progress.check_between_leases(call);
  try {
    core_.reads_.finish();
  } catch (...) {
    progress.fail(std::current_exception());
    throw;
  }
}

/// Waits for all work that uses the states, which are about to change. Collective.
void EngineStates::begin_change(std::string_view call) {
  finish_reads(call);
  core_.synchronize();
  core_.reads_.synchronize();
  core_.settle_states(call);
}

std::vector<LogicalTensor> EngineStates::tensors(StateKind kind) const {
  return core_.usable("tensors").state.tensors(kind);
}

std::vector<StateRun> EngineStates::runs(const LogicalTensor& tensor) const {
  const ModelState& states = core_.usable("runs").state;
  const ModelState::Parameter parameter = states.find(tensor);
  return states.runs(*parameter.unit, parameter.index, tensor.kind);
}

bool EngineStates::keeps(const LogicalTensor& tensor, std::int64_t begin,
                         std::int64_t count) const {
  const ModelState& states = core_.usable("keeps").state;
  return states.keeps(states.find(tensor), tensor.kind, begin, count);
}

std::int64_t EngineStates::steps_done() const {
  return core_.sealed("steps_done").progress.steps_done();
}

std::int64_t EngineStates::steps_skipped() const {
  return core_.sealed("steps_skipped").progress.steps_skipped();
}

void EngineStates::read(std::string_view name, StateKind kind, View out) {
  const ModelState& states = finished_values("read");
  const ModelState::Parameter parameter = states.find(name, kind, out);
  const StepCosts::OutsideStep guard(core_.costs_);
  states.read(*parameter.unit, parameter.index, kind, out);
  core_.settle_states("read");
}

void EngineStates::write(std::string_view name, StateKind kind, View values) {
  EngineCore::Sealed& parts = core_.usable("write");
  const ModelState::Parameter parameter = parts.state.find(name, kind, values);
  if (kind == StateKind::parameter) parts.progress.check_between_steps("write");
  if (kind == StateKind::gradient)
    parts.progress.check_gradients_finished("write", kChangeOfGradients);
  require_values("write");
  begin_change("write");
  core_.given_.add_write(name, kind, values);
  parts.state.set(*parameter.unit, parameter.index, kind, 0, values);
  if (kind == StateKind::parameter) publish_parameters();
  if (kind == StateKind::gradient) parts.progress.change_gradients();
}

void EngineStates::copy(const LogicalTensor& tensor, std::int64_t begin, const View& to,
                        Stream& stream) const {
  const ModelState& states = core_.usable("copy").state;
  require_values("copy");
  states.copy(states.find(tensor), tensor.kind, begin, to, stream);
}

void EngineStates::set(const LogicalTensor& tensor, std::int64_t begin, const View& values) {
  EngineCore::Sealed& parts = core_.usable("set");
  parts.progress.check_between_steps("set");
  const ModelState::Parameter parameter = parts.state.find(tensor);
  require_values("set");
  ZERO_CHECK(tensor.kind != StateKind::gradient, "[rank {}] set: \"{}\" is a gradient; use write()",
             core_.world_.rank(), tensor.name);
  ZERO_CHECK(core_.reads_.finished(),
             "[rank {}] set: the attached reader has rounds left; call finish_reads() first, "
             "on all ranks",
             core_.world_.rank());
  core_.synchronize();
  core_.reads_.synchronize();
  parts.state.set(*parameter.unit, parameter.index, tensor.kind, begin, values);
  if (const std::string why = failure(); !why.empty())
    fail("[rank {}] set: {}", core_.world_.rank(), why);
}

std::vector<HeldTensor> EngineStates::held(StateKind kind) {
  std::vector<HeldTensor> held = finished("held").held_tensors(kind);
  for (const HeldTensor& tensor : held) {
    for (const StateView& view : tensor.views) {
      const StateAccess& access = core_.parts().access;
      ZERO_CHECK(!access.away(view.values),
                 "[rank {}] held: {} of \"{}\" is in {}; use read() and write()",
                 core_.world_.rank(), name_of(kind), tensor.name,
                 access.in_file(view.values) ? "a file, not in memory"
                                             : "host memory, not in the device's");
    }
  }
  return held;
}

HostAccess& EngineStates::host_access() { return core_.sealed("host_access").access.memory(); }

void EngineStates::publish_parameters() {
  EngineCore::Sealed& parts = core_.usable("publish_parameters");
  parts.progress.check_between_steps("publish_parameters");
  begin_change("publish_parameters");
  const StepCosts::OutsideStep guard(core_.costs_);
  parts.sharding->wait_for_peers("publish_parameters");
  for (const Unit& unit : core_.units_) core_.refresh_frozen(unit);
  parts.windows.begin({StateFields::masters, StateFields::masters});
  for (const int index : parts.order) {
    Unit& unit = core_.unit_at(index);
    give_sign_of_life();
    while (parts.windows.more(index)) {
      give_sign_of_life();  // the piece may be this rank's alone: no collective shows it
      publish(unit, parts.windows.next());
      parts.windows.changed();
    }
    for (const Segment& segment : unit.segments) {
      if (segment.trainable) continue;
      const FlatRange all{0, segment.layout.padded()};
      parts.sharding->spread_states(segment.full, segment, all, {unit.name, {}});
    }
    for (const Gathers::Kind kind : kAllParameters) parts.gathers.publish(unit, kind);
  }
  parts.gathers.begin_micro_batch();
}

/// Updates the other copies of a piece's master values on this rank, on its streams.
void EngineStates::publish(const Unit& unit, const PieceStates& states) {
  EngineCore::Sealed& parts = core_.parts();
  Stream& compute = core_.device_.compute();
  Stream& communication = core_.device_.communication();
  const Segment& segment = *unit.trainable();
  const auto& [begin, count] = states.range;
  communication.wait(compute.record());
  parts.sharding->spread_states(states.master, segment, {segment.own_begin + begin, count},
                                {unit.name, {}});
  communication.synchronize();
  if (!states.copy.empty()) core_.device_.kernels().convert(compute, states.master, states.copy);
}

void EngineStates::publish_gradients() {
  EngineCore::Sealed& parts = core_.usable("publish_gradients");
  parts.progress.check_gradients_finished("publish_gradients", kChangeOfGradients);
  core_.synchronize();
  const StepCosts::OutsideStep guard(core_.costs_);
  for (const int index : parts.order) {
    Unit& unit = core_.unit_at(index);
    if (Segment* segment = unit.trainable(); segment != nullptr)
      parts.sharding->finish_gradient(*segment, {unit.name, {}});
  }
  core_.device_.communication().synchronize();
  parts.progress.change_gradients();
}

void EngineStates::restore(std::int64_t steps_done, std::int64_t steps_skipped) {
  EngineCore::Sealed& parts = core_.usable("restore");
  parts.progress.check_between_steps("restore");
  ZERO_CHECK(steps_done >= 0 && steps_skipped >= 0,
             "[rank {}] restore: {} steps done and {} skipped, expected 0 or more",
             core_.world_.rank(), steps_done, steps_skipped);
  begin_change("restore");
  core_.given_.add_restore(steps_done, steps_skipped);
  parts.coded.forget();
  parts.progress.restore(steps_done, steps_skipped);
  core_.world_.set_step(parts.progress.steps() + 1);
}

void EngineStates::initialise() {
  EngineCore::Sealed& parts = core_.usable("initialise");
  parts.progress.check_between_steps("initialise");
  begin_change("initialise");
  const StepCosts::OutsideStep guard(core_.costs_);
  parts.sharding->wait_for_peers("initialise");
  core_.initialise(StateFields::all, {});
  for (const Gathers::Kind kind : kAllParameters) core_.publish_all(kind);
  parts.gathers.begin_micro_batch();
  restore(0, 0);
}

void EngineStates::attach(StateReader* reader) {
  if (reader != nullptr) {
    core_.usable("attach").progress.check_between_steps("attach");
    core_.settle_states("attach");
  }
  if (core_.reads_.reader() != nullptr && core_.reads_.reader() != reader)
    core_.reads_.reader()->replaced();
  core_.reads_.attach(reader, core_.units_.size());
}

double EngineStates::save_seconds() const { return core_.reads_.total_seconds(); }

std::string EngineStates::failure() const {
  return core_.sealed_ ? core_.sealed_->home.failure() : std::string();
}

std::uint64_t EngineStates::hash(const PassProgress& progress) {
  const ModelState& states = finished_values("hash");
  const StepCosts::OutsideStep guard(core_.costs_);
  const std::uint64_t hash = states.hash(progress);
  core_.settle_states("hash");
  return hash;
}

void EngineStates::check_replicas() {
  require_values("check_replicas");
  core_.check_replicas();
}

}  // namespace zero
