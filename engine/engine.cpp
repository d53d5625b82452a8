// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#include "engine/engine.h"

#include <algorithm>

#include "engine/engine_core.h"

namespace zero {

Engine::Engine(Communicator& communicator, Device& device, EngineOptions options)
    : core_(std::make_shared<EngineCore>(std::make_unique<CountedMesh>(communicator), device,
                                         std::move(options))),
      states_(*core_) {}
Engine::Engine(Mesh& mesh, Device& device, EngineOptions options)
    : core_(std::make_shared<EngineCore>(std::make_unique<CountedMesh>(mesh), device,
                                         std::move(options))),
      states_(*core_) {}
Engine::~Engine() { core_->drain(); }

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

const WaitMeter& Engine::waits_for_tiers() const { return core_->waits_.of_tiers(); }
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
  const EngineResources& resources = parts.resources;
  const Sharding& sharding = *parts.sharding;
  CountedMesh& mesh = *core_->mesh_;
  const EngineOptions& options = resources.options;
  const int reduces =
      options.reduction == ReductionPolicy::boundary ? 1 : resources.accumulation_steps;
  MeshTraffic traffic;
  const auto book = [&](const Communicator& along, Operation counted_as, Operation operation,
                        std::int64_t bytes, int times) {
    mesh.booked(traffic, along)
        .add(counted_as, Communicator::sent_bytes(operation, bytes, along.size()) * times);
  };
  const auto gather = [&](Operation counted_as, std::int64_t elements, DType dtype, int times) {
    book(resources.shards, counted_as, Operation::all_gather, elements * size_of(dtype), times);
  };
  for (const Window& window : parts.gathers.training().windows) {
    if (window.kind == Window::Kind::gradients) continue;
    for (const Segment& segment : core_->unit_at(window.unit).segments) {
      gather(Operation::all_gather, sharding.window_elements(segment), options.compute,
             resources.accumulation_steps);
    }
  }
  for (const Unit& unit : core_->units_) {
    const Segment* segment = unit.trainable();
    if (segment == nullptr) continue;
    const std::int64_t wire = segment->layout.world() * size_of(parts.reducer.wire_dtype());
    const std::int64_t chunk = parts.reducer.chunk(*segment);
    for (std::int64_t begin = 0; begin < segment->layout.shard(); begin += chunk) {
      const std::int64_t count = std::min(chunk, segment->layout.shard() - begin);
      book(resources.shards, sharding.reduce_traffic(), Operation::reduce_scatter, wire * count,
           reduces);
      book(resources.replicate, Operation::all_reduce, Operation::all_reduce,
           count * size_of(DType::fp32), reduces);
    }
    gather(Operation::all_gather, sharding.published_elements(*segment), options.compute, 1);
    gather(Operation::all_reduce, sharding.finished_elements(*segment), resources.gradient, 1);
  }
  book(mesh.world(), Operation::all_reduce, Operation::all_reduce,
       StepSums::kCount * size_of(DType::i64), 1);
  return traffic;
}

std::vector<LiveTensor> Engine::live_tensors() const {
  const EngineCore::Sealed& parts = core_->sealed("live_tensors");
  ZERO_CHECK(!parts.gathers.evaluating(),
             "[rank {}] live_tensors: an evaluation is on; only outside of evaluations",
             core_->world_.rank());
  return zero::live_tensors(core_->units_, parts.gathers.training(), parts.progress, parts.home);
}

std::vector<ParameterOwnership> Engine::ownership() const {
  core_->sealed("ownership");
  return ownership_of(core_->units_, core_->mesh_->mesh().shape());
}

std::weak_ptr<const void> Engine::lifetime() const { return core_; }

}  // namespace zero
