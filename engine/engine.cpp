// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#include "engine/engine.h"

#include "engine/engine_core.h"
#include "engine/planned_traffic.h"

namespace zero {

Engine::Engine(Communicator& communicator, Device& device, EngineOptions options)
    : core_(std::make_shared<EngineCore>(std::make_unique<CountedMesh>(communicator), device,
                                         std::move(options))),
      states_(*core_) {}
Engine::Engine(Mesh& mesh, Device& device, EngineOptions options)
    : core_(std::make_shared<EngineCore>(std::make_unique<CountedMesh>(mesh), device,
                                         std::move(options))),
      states_(*core_) {}
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

const EngineOptions& Engine::options() const { return core_->options_; }
Communicator& Engine::communicator() { return core_->mesh_->world(); }
CountedMesh& Engine::mesh() { return *core_->mesh_; }
void Engine::require_same(std::string key, std::string value) { core_->require_same(key, value); }
Device& Engine::device() { return core_->device_; }
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

std::vector<ParameterOwnership> Engine::ownership() const {
  core_->sealed("ownership");
  return ownership_of(core_->units_, core_->mesh_->mesh().shape());
}

std::weak_ptr<const void> Engine::lifetime() const { return core_; }

}  // namespace zero
