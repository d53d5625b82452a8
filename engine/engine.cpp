// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#include "engine/engine.h"

#include "engine/engine_core.h"
#include "engine/planned_traffic.h"
#include "engine/state_hash.h"

namespace zero {

Engine::Engine(Communicator& communicator, Device& device, EngineOptions options)
    : core_(std::make_shared<EngineCore>(std::make_unique<CountedMesh>(communicator), device,
                                         std::move(options))) {}
Engine::Engine(Mesh& mesh, Device& device, EngineOptions options)
    : core_(std::make_shared<EngineCore>(std::make_unique<CountedMesh>(mesh), device,
                                         std::move(options))) {}
Engine::~Engine() = default;

UnitId Engine::add_unit(std::string name, std::vector<ParameterSpec> parameters) {
  return core_->add_unit(std::move(name), std::move(parameters));
}
void Engine::seal(SealOptions options) { core_->seal(options); }
ParameterLease Engine::forward(UnitId unit) { return core_->forward(unit); }
GradientLease Engine::backward(UnitId unit) { return core_->backward(unit); }
StepReport Engine::step(const StepOptions& options) { return core_->step(options); }
void Engine::begin_evaluation() { core_->set_evaluation(true); }
void Engine::end_evaluation() { core_->set_evaluation(false); }

CaptureCounts Engine::captured_graphs() const { return core_->graphs_.captured(); }
void Engine::discard_graphs() { core_->discard_graphs(); }

int Engine::stage() const { return core_->options_.stage; }
const EngineOptions& Engine::options() const { return core_->options_; }
Communicator& Engine::communicator() { return core_->mesh_->world(); }
CountedMesh& Engine::mesh() { return *core_->mesh_; }
void Engine::require_same(std::string key, std::string value) { core_->require_same(key, value); }
Device& Engine::device() { return core_->device_; }
HostAccess& Engine::host_access() { return core_->sealed("host_access").host_access; }
const Schedule& Engine::schedule() const { return core_->sealed("schedule").gathers.training(); }
std::vector<std::string> Engine::unit_names() const {
  std::vector<std::string> names;
  for (const Unit& unit : core_->units_) names.push_back(unit.name);
  return names;
}
std::vector<double> Engine::exposed_by_use() const { return core_->costs_.exposed_by_use(); }

std::int64_t Engine::parameter_count() const {
  std::int64_t count = 0;
  for (const Unit& unit : core_->units_) {
    for (const ParameterSpec& spec : unit.specs) count += spec.logical_count();
  }
  return count;
}

std::int64_t Engine::padding_count() const {
  std::int64_t count = 0;
  for (const Unit& unit : core_->units_) {
    for (const Segment& segment : unit.segments) count += segment.layout.padding();
  }
  return count;
}

MeshTraffic Engine::planned_axes() const {
  const EngineCore::Sealed& parts = core_->sealed("planned_axes");
  return planned_traffic(parts.resources, *parts.sharding, parts.reducer, core_->units_,
                         parts.gathers.training(), *core_->mesh_);
}
std::vector<LogicalTensor> Engine::tensors(StateKind kind) const {
  return core_->usable("tensors").state.tensors(kind);
}
std::vector<StateRun> Engine::runs(const LogicalTensor& tensor) const {
  const ModelState& states = core_->usable("runs").state;
  const ModelState::Parameter parameter = states.find(tensor);
  return states.runs(*parameter.unit, parameter.index, tensor.kind);
}
bool Engine::keeps(const LogicalTensor& tensor, std::int64_t begin, std::int64_t count) const {
  const ModelState& states = core_->usable("keeps").state;
  return states.keeps(states.find(tensor), tensor.kind, begin, count);
}
void Engine::copy_state(const LogicalTensor& tensor, std::int64_t begin, const View& to,
                        Stream& stream) const {
  const ModelState& states = core_->usable("copy_state").state;
  core_->require_values("copy_state");
  states.copy(states.find(tensor), tensor.kind, begin, to, stream);
}
void Engine::set_state(const LogicalTensor& tensor, std::int64_t begin, const View& values) {
  core_->set_state(tensor, begin, values);
}
void Engine::restore(std::int64_t steps_done, std::int64_t steps_skipped) {
  core_->restore(steps_done, steps_skipped);
}
void Engine::initialise() { core_->initialise(); }
void Engine::attach(StateReader* reader) { core_->attach(reader); }
void Engine::finish_reads() { core_->finish_reads("finish_reads"); }
double Engine::save_seconds() const { return core_->reads_.total_seconds(); }
std::vector<HeldTensor> Engine::state(StateKind kind) {
  return core_->finished_states("state").held_tensors(kind);
}
void Engine::read(std::string_view name, StateKind kind, View out) {
  const ModelState& state = core_->finished_values("read");
  const ModelState::Parameter parameter = state.find(name, kind, out);
  const StepCosts::OutsideStep guard(core_->costs_);
  state.read(*parameter.unit, parameter.index, kind, out);
}
void Engine::write(std::string_view name, StateKind kind, View values) {
  core_->write(name, kind, values);
}
void Engine::publish_parameters() { core_->publish_parameters(); }
void Engine::publish_gradients() { core_->publish_gradients(); }
std::int64_t Engine::steps_done() const {
  return core_->sealed("steps_done").progress.steps_done();
}
std::int64_t Engine::steps_skipped() const {
  return core_->sealed("steps_skipped").progress.steps_skipped();
}
std::uint64_t Engine::state_hash() {
  const ModelState& state = core_->finished_values("state_hash");
  const StepCosts::OutsideStep guard(core_->costs_);
  return zero::state_hash(state);
}

std::vector<ParameterOwnership> Engine::ownership() const {
  core_->sealed("ownership");
  return ownership_of(core_->units_, core_->mesh_->mesh().shape());
}
void Engine::check_replicas() {
  core_->require_values("check_replicas");
  core_->check_replicas();
}

std::weak_ptr<const void> Engine::lifetime() const { return core_; }

}  // namespace zero
