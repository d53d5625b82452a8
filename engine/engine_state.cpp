// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#include "engine/engine_core.h"

namespace zero {

const ModelState& EngineCore::states(std::string_view call) const {
  check_usable(call);
  return *state_;
}

const ModelState& EngineCore::finished_states(std::string_view call) {
  check_usable(call);
  synchronize();
  return *state_;
}

void EngineCore::check_between_steps(std::string_view call) const {
  ZERO_CHECK(cursor_ == 0 && micro_batch_ == 0 && !leased_ && !gathers_->evaluating(),
             "[rank {}] {}: only between optimizer steps", world_.rank(), call);
}

void EngineCore::check_gradients_finished(std::string_view call) const {
  ZERO_CHECK(
      micro_batch_ == accumulation_steps_ && !leased_ && !gathers_->evaluating(),
      "[rank {}] {}: {} of {} micro-batches are done; change a gradient after the last one's "
      "backward and before step(), when it is finished and not used yet",
      world_.rank(), call, micro_batch_, accumulation_steps_);
}

void EngineCore::attach(StateReader* reader) {
  if (reader != nullptr) {
    check_usable("attach");
    check_between_steps("attach");
  }
  reads_.attach(reader, units_.size());
}

/// An error of the reader leaves this rank behind the others, so it fails the engine.
void EngineCore::finish_reads(std::string_view call) {
  check_usable(call);
  ZERO_CHECK(!leased_, "[rank {}] {}: a lease has not ended; only between leases", world_.rank(),
             call);
  try {
    reads_.finish();
  } catch (...) {
    failure_ = std::current_exception();
    throw;
  }
}

/// Waits for all work that uses the states, which are about to change. Collective.
void EngineCore::begin_change(std::string_view call) {
  finish_reads(call);
  synchronize();
  reads_.synchronize();
}

/// Where ranks share memory, a peer may still compute with the values that change now.
void EngineCore::wait_for_peers(std::string_view call) {
  if (!sharding_->in_common()) return;
  shards_.barrier(device_.communication(), {std::string(call), {}});
  device_.communication().synchronize();
}

void EngineCore::set_state(const LogicalTensor& tensor, std::int64_t begin, const View& values) {
  check_usable("set_state");
  check_between_steps("set_state");
  const ModelState::Parameter parameter = state_->find(tensor);
  ZERO_CHECK(tensor.kind != StateKind::gradient,
             "[rank {}] set_state: \"{}\" is a gradient; use write()", world_.rank(), tensor.name);
  ZERO_CHECK(reads_.finished(),
             "[rank {}] set_state: the attached reader has rounds left; call finish_reads() first, "
             "on all ranks",
             world_.rank());
  synchronize();
  reads_.synchronize();
  state_->set(*parameter.unit, parameter.index, tensor.kind, begin, values);
}

void EngineCore::restore(std::int64_t steps_done, std::int64_t steps_skipped) {
  check_usable("restore");
  check_between_steps("restore");
  ZERO_CHECK(steps_done >= 0 && steps_skipped >= 0,
             "[rank {}] restore: {} steps done and {} skipped, expected 0 or more", world_.rank(),
             steps_done, steps_skipped);
  begin_change("restore");
  steps_done_ = steps_done;
  steps_reported_ = steps_done + steps_skipped;
  world_.set_step(steps_reported_ + 1);
}

void EngineCore::initialise() {
  check_usable("initialise");
  check_between_steps("initialise");
  begin_change("initialise");
  const StepCosts::OutsideStep guard(costs_);
  wait_for_peers("initialise");
  for (Unit& unit : units_) {
    for (Segment& segment : unit.segments) {
      for (const View& moment : segment.moments) device_.kernels().zero(device_.compute(), moment);
    }
    unit.initialise(device_, options_.seed);
  }
  for (const Kind kind : {Kind::frozen, Kind::trainable}) publish_all(kind);
  gathers_->begin_micro_batch();
  restore(0, 0);
}

void EngineCore::write(std::string_view name, StateKind kind, const View& values) {
  check_usable("write");
  const ModelState::Parameter parameter = state_->find(name, kind, values);
  if (kind == StateKind::parameter) check_between_steps("write");
  if (kind == StateKind::gradient) check_gradients_finished("write");
  begin_change("write");
  state_->set(*parameter.unit, parameter.index, kind, 0, values);
  if (kind == StateKind::parameter) publish_parameters();
  if (kind == StateKind::gradient) gradients_changed_ = true;
}

/// Updates the copies that live between steps from this rank's part.
void EngineCore::publish(Unit& unit, Kind kind) {
  waits_.wait(device_.communication(), device_.compute().record(), WaitSite::update_before_gather);
  for (Segment& segment : unit.segments) {
    if (segment.trainable == (kind == Kind::trainable))
      sharding_->publish(segment, {unit.name, {}});
  }
  unit.ready = device_.communication().record();
  resources().settle();
}

void EngineCore::publish_all(Kind kind) {
  for (const int index : order_) publish(unit_at(index), kind);
}

void EngineCore::publish_gradients() {
  check_usable("publish_gradients");
  check_gradients_finished("publish_gradients");
  synchronize();
  const StepCosts::OutsideStep guard(costs_);
  for (const int index : order_) {
    Unit& unit = unit_at(index);
    if (Segment* segment = unit.trainable(); segment != nullptr)
      sharding_->finish_gradient(*segment, {unit.name, {}});
  }
  device_.communication().synchronize();
  gradients_changed_ = true;
}

void EngineCore::publish_parameters() {
  check_usable("publish_parameters");
  check_between_steps("publish_parameters");
  begin_change("publish_parameters");
  const StepCosts::OutsideStep guard(costs_);
  wait_for_peers("publish_parameters");
  for (const int index : order_) {
    Unit& unit = unit_at(index);
    for (Segment& segment : unit.segments) {
      if (segment.trainable) sharding_->spread_states(segment.master, segment, {unit.name, {}});
    }
    device_.communication().synchronize();
    for (Segment& segment : unit.segments) {
      if (segment.trainable && options_.compute != DType::fp32) {
        device_.kernels().convert(device_.compute(), segment.master, segment.own);
      }
      if (!segment.trainable) sharding_->spread_states(segment.full, segment, {unit.name, {}});
    }
    for (const Kind kind : {Kind::frozen, Kind::trainable}) publish(unit, kind);
  }
  gathers_->begin_micro_batch();
}

}  // namespace zero
