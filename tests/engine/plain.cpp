// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#include "tests/engine/plain.h"

#include <fmt/format.h>

#include "device/host_access.h"
#include "tests/engine/elements.h"
#include "tests/support/test_device.h"

namespace zero::plain {
namespace {

void write_gradient(const View& gradient, const View& parameter, std::int64_t place,
                    std::int64_t number) {
  for (std::int64_t i = 0; i < gradient.count(); ++i) {
    const std::uint64_t mixed = (static_cast<std::uint64_t>(place + i) * 0x9e3779b97f4a7c15ULL) ^
                                (static_cast<std::uint64_t>(number) * 0xff51afd7ed558ccdULL);
    const float noise = static_cast<float>(mixed >> 48) / 65536.0F - 0.5F;
    toy::put(gradient, i, 0.125F * toy::get(parameter, i) + noise);
  }
}

}  // namespace

std::string text(const MeshShape& mesh) {
  return fmt::format("{{replicate {}, shard {}, tensor {}}}", mesh.replicate, mesh.shard,
                     mesh.tensor);
}

std::vector<UnitSpec> odd_units() {
  return {
      {"embedding", {{"tokens", {31, 17}, init::normal(0.02F)}}},
      {"first",
       {{"weight", {29, 13}, init::normal(0.02F)},
        {"bias", {13}, init::zeros()},
        {"scale", {13}, init::ones()}}},
      {"second", {{"weight", {41, 11}, init::uniform(-0.1F, 0.1F)}, {"bias", {11}, init::zeros()}}},
      {"single", {{"value", {}, init::constant(0.5F)}, {"empty", {0, 5}, init::zeros()}}},
      {"head", {{"weight", {3, 5, 67}, init::normal(0.02F)}}}};
}

std::vector<UnitSpec> equal_units(int count, std::int64_t elements) {
  std::vector<UnitSpec> units;
  for (int i = 0; i < count; ++i)
    units.push_back({fmt::format("layer.{}", i), {{"weight", {elements}, init::zeros()}}});
  return units;
}

EngineOptions options(int stage, DType compute) {
  EngineOptions options;
  options.stage = stage;
  options.compute = compute;
  options.limits.persistence_threshold = 0;
  options.seed = 3;
  options.checked = true;
  return options;
}

std::optional<TensorSlice> odd_slices(const ParameterSpec& whole, int rank, int ranks) {
  if (whole.shape.empty()) return std::nullopt;
  TensorSlice slice{whole.shape, 0, {}};
  if (whole.shape.size() == 1 && whole.shape[0] < 12) {
    const TensorSlice::Range range = even_range(whole.shape[0], rank / 2, (ranks + 1) / 2);
    slice.ranges.push_back({range.begin, range.count, rank % 2});
    return slice;
  }
  if (whole.shape.size() > 1 && whole.shape[0] % 2 == 1)
    slice.dimension = static_cast<int>(whole.shape.size()) - 1;
  const std::int64_t length = whole.shape[static_cast<std::size_t>(slice.dimension)];
  TensorSlice::Range front = even_range(length / 2, rank, ranks);
  TensorSlice::Range back = even_range(length - length / 2, ranks - 1 - rank, ranks);
  back.begin += length / 2;
  slice.ranges = {front, back};
  return slice;
}

Setup sliced_setup(int stage, const MeshShape& mesh, DType compute) {
  return {options(stage, compute), odd_units(), 1, mesh, odd_slices};
}

Trainer::Trainer(Communicator& communicator, Device& device, const Setup& setup)
    : setup_(setup), mesh_(communicator, setup.mesh), engine_(mesh_, device, setup.engine) {
  for (UnitSpec& unit : setup_.units) {
    for (ParameterSpec& spec : unit.parameters) {
      if (!setup.slicing) continue;
      spec.slice = setup.slicing(spec, mesh_.index(Axis::tensor), mesh_.size(Axis::tensor));
      if (spec.slice) spec.shape = spec.slice->local_shape();
    }
    ids_.push_back(engine_.add_unit(unit.name, unit.parameters));
  }
  engine_.seal({.order = {}, .accumulation_steps = setup.accumulation_steps});
}

void Trainer::forward() {
  for (const UnitId unit : ids_) static_cast<void>(engine_.forward(unit));
}

void Trainer::backward(std::int64_t number) {
  for (std::size_t unit = ids_.size(); unit-- > 0;) {
    const GradientLease lease = engine_.backward(ids_[unit]);
    for (int i = 0; i < static_cast<int>(setup_.units[unit].parameters.size()); ++i) {
      engine_.device().compute().submit(
          "gradient", [&spec = setup_.units[unit].parameters[static_cast<std::size_t>(i)],
                       gradient = lease.gradient(i), parameter = lease.parameter(i), number] {
            spec.for_each_run(0, gradient.count(), [&](const TensorSlice::Run& run) {
              write_gradient(gradient.slice(run.local, run.count),
                             parameter.slice(run.local, run.count), run.logical, number);
            });
          });
    }
  }
}

StepReport Trainer::step(double learning_rate) {
  for (int j = 0; j < setup_.accumulation_steps; ++j) {
    forward();
    backward((step_ * setup_.accumulation_steps + j) * mesh_.data().size() + mesh_.data().rank());
  }
  ++step_;
  StepOptions step_options;
  step_options.learning_rate = learning_rate;
  return engine_.step(step_options);
}

void run(int world, const Setup& setup, const std::function<void(Trainer&, Communicator&)>& body) {
  local::run(world, [&](Communicator& communicator) {
    const std::unique_ptr<Device> device =
        setup.memory == MemorySpace::host
            ? cpu::open()
            : testing::open({.policy = testing::StreamOrder::Policy::lazy, .memory = setup.memory});
    const auto disk = setup.states_disk ? setup.states_disk(communicator.rank()) : nullptr;
    Setup own = setup;
    if (disk) own.engine.tiers.file.disk = disk.get();
    Trainer trainer(communicator, *device, own);
    body(trainer, communicator);
  });
}

std::uint64_t train(int world, const Setup& setup, int steps) {
  std::vector<std::uint64_t> hashes(static_cast<std::size_t>(world));
  run(world, setup, [&](Trainer& trainer, Communicator& communicator) {
    for (int i = 0; i < steps; ++i) trainer.step();
    hashes[static_cast<std::size_t>(communicator.rank())] = trainer.engine().states().hash();
  });
  for (const std::uint64_t hash : hashes) {
    ZERO_CHECK(hash == hashes[0], "ranks disagree: {:016x} and {:016x}", hash, hashes[0]);
  }
  return hashes[0];
}

std::vector<float> seen(Engine& engine, const View& values) {
  std::vector<float> all;
  engine.states().host_access().read(values, [&](std::int64_t, const View& piece) {
    for (std::int64_t i = 0; i < piece.count(); ++i) all.push_back(toy::get(piece, i));
  });
  return all;
}

std::vector<float> read(Engine& engine, std::string_view name, StateKind kind) {
  for (const LogicalTensor& tensor : engine.states().tensors(kind)) {
    if (tensor.name != name) continue;
    std::int64_t count = 1;
    for (const std::int64_t dimension : tensor.shape) count *= dimension;
    std::vector<float> values(static_cast<std::size_t>(count));
    engine.states().read(name, kind, View::of(std::span(values)));
    return values;
  }
  fail("no tensor {}", name);
}

}  // namespace zero::plain
