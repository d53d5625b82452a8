// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#include "engine/engine.h"

#include "engine/engine_core.h"

namespace zero {

Engine::Engine(Communicator& communicator, Device& device, EngineOptions options)
    : core_(std::make_unique<EngineCore>(std::make_unique<CountedMesh>(communicator), device,
                                         std::move(options))) {}
Engine::Engine(Mesh& mesh, Device& device, EngineOptions options)
    : core_(std::make_unique<EngineCore>(std::make_unique<CountedMesh>(mesh), device,
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

KeptPasses Engine::kept_passes() const { return core_->kept_passes(); }
void Engine::forget_passes() { core_->forget_passes(); }

int Engine::stage() const { return core_->options().stage; }
const EngineOptions& Engine::options() const { return core_->options(); }
Communicator& Engine::communicator() { return core_->mesh().world(); }
CountedMesh& Engine::mesh() { return core_->mesh(); }
void Engine::require_same(std::string key, std::string value) { core_->require_same(key, value); }
Device& Engine::device() { return core_->device(); }
HostPieces& Engine::pieces() { return core_->pieces(); }
const Schedule& Engine::schedule() const { return core_->schedule(); }
std::vector<std::string> Engine::unit_names() const {
  std::vector<std::string> names;
  for (const Unit& unit : core_->units()) names.push_back(unit.name);
  return names;
}
std::vector<double> Engine::exposed_by_use() const { return core_->exposed_by_use(); }

std::int64_t Engine::parameter_count() const {
  std::int64_t count = 0;
  for (const Unit& unit : core_->units()) {
    for (const ParameterSpec& spec : unit.specs) count += spec.logical_count();
  }
  return count;
}

std::int64_t Engine::padding_count() const {
  std::int64_t count = 0;
  for (const Unit& unit : core_->units()) {
    for (const Segment& segment : unit.segments) count += segment.layout.padding();
  }
  return count;
}

MeshTraffic Engine::planned_axes() const { return core_->planned_axes(); }
std::vector<LogicalTensor> Engine::state(StateKind kind) {
  return core_->state("state").tensors(kind);
}
void Engine::read(std::string_view name, StateKind kind, View out) {
  const ModelState& state = core_->state("read");
  const ModelState::Parameter parameter = state.find(name, kind, out);
  const EngineCore::OutsideStep guard(*core_);
  state.read(*parameter.unit, parameter.index, kind, out);
}
void Engine::write(std::string_view name, StateKind kind, View values) {
  core_->write(name, kind, values);
}
void Engine::publish_parameters() { core_->publish_parameters(); }
void Engine::publish_gradients() { core_->publish_gradients(); }
std::int64_t Engine::steps_done() const { return core_->steps_done(); }
std::uint64_t Engine::state_hash() {
  const ModelState& state = core_->state("state_hash");
  const EngineCore::OutsideStep guard(*core_);
  return state.hash();
}

std::vector<ParameterOwnership> Engine::ownership() const {
  core_->check_sealed("ownership");
  return ownership_of(core_->units(), core_->mesh().mesh().shape());
}
void Engine::check_replicas() { core_->check_replicas(); }

void testing::skip_wait(Engine& engine, std::optional<WaitSite> site) {
  engine.core_->waits().skip(site);
}

}  // namespace zero
