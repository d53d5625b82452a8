// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#include "tests/engine/toy_run.h"

#include <deque>
#include <mutex>

#include "collectives/backends.h"
#include "engine/value_hash.h"
#include "tests/engine/copying_reader.h"
#include "tests/engine/engine_parts.h"
#include "tests/support/test_device.h"

namespace zero::toy {

std::ostream& operator<<(std::ostream& out, const Result& result) {
  out << fmt::format("hash {:016x}, read {:016x}", result.hash, result.read);
  for (std::size_t i = 0; i < result.losses.size(); ++i)
    out << fmt::format(" ({} {})", result.losses[i], result.norms[i]);
  return out;
}

EngineOptions options(int stage, DType compute) {
  EngineOptions options;
  options.stage = stage;
  options.compute = compute;
  options.optimizer.weight_decay = 0.1F;
  options.groups = {{"*.bias", 1.0F, 0.0F}};
  options.gradient_clipping = 0.3;
  options.limits.persistence_threshold = 0;
  options.seed = 7;
  options.checked = true;
  return options;
}

void with_engine(const Job& run, const std::function<void(Engine&, Model&, Communicator&)>& body) {
  local::run(run.world, [&](Communicator& communicator) {
    std::optional<testing::StreamOrder> order = run.order;
    if (order) order->seed = order->seed * 1000 + static_cast<std::uint64_t>(communicator.rank());
    const std::unique_ptr<Device> device = order ? testing::open(*order) : cpu::open();
    Mesh mesh(communicator, run.mesh);
    EngineOptions options = run.engine;
    const auto disk = run.states_disk ? run.states_disk(communicator.rank()) : nullptr;
    if (disk) options.tiers.file.disk = disk.get();
    Engine engine(mesh, *device, options);
    Model model(engine, run.shape);
    EngineParts::of(engine).waits().skip(run.skipped);
    engine.seal({.order = model.order(), .accumulation_steps = run.accumulation_steps});
    body(engine, model, communicator);
    device->compute().synchronize();
    device->communication().synchronize();
  });
}

StepReport step(Engine& engine, Model& model, Communicator& communicator, const Job& run,
                int index) {
  const std::int64_t all = static_cast<std::int64_t>(run.accumulation_steps) * run.world;
  const double scale = run.loss_scale ? run.loss_scale(index) : 1;
  std::vector<double*> slots;
  for (int j = 0; j < run.accumulation_steps; ++j) {
    const std::int64_t batch =
        index * all + static_cast<std::int64_t>(j) * run.world + communicator.rank();
    slots.push_back(model.loss_slot());
    model.train(batch, static_cast<float>(scale) / static_cast<float>(all * run.shape.rows),
                slots.back());
  }
  if (run.order)  // nothing but the engine orders the streams
    return engine.step({.learning_rate = 0.01, .loss_scale = scale});
  engine.device().compute().synchronize();
  std::vector<double> losses;
  for (const double* slot : slots) losses.push_back(*slot);
  return engine.step({.learning_rate = 0.01, .loss_scale = scale, .losses = losses});
}

namespace {

/// The sum over the copies of each reader; told apart by the step and the rank.
std::uint64_t hash_of(std::deque<CopyingReader>& readers, int rank) {
  std::uint64_t sum = 0;
  for (std::size_t i = 0; i < readers.size(); ++i) {
    const std::vector<float> values = readers[i].copied();
    sum += hash_blocks(i * 100 + static_cast<std::uint64_t>(rank), 0, View::of(std::span(values)));
  }
  return sum;
}

}  // namespace

Result train(const Job& run) {
  std::mutex mutex;
  std::optional<Result> common;
  std::uint64_t read = 0;
  with_engine(run, [&](Engine& engine, Model& model, Communicator& communicator) {
    Result result;
    std::deque<CopyingReader> readers;
    for (int i = 0; i < run.steps; ++i) {
      if (run.read_rounds > 0)
        engine.states().attach(&readers.emplace_back(engine, run.read_rounds));
      const StepReport report = step(engine, model, communicator, run, i);
      result.losses.push_back(report.loss);
      if (report.nonfinite) {
        if (!run.loss_scale) fail("step {}: {} is not finite", report.step, *report.nonfinite);
        result.skipped.push_back(report.step);
      } else {
        result.norms.push_back(report.gradient_norm);
      }
    }
    engine.states().attach(nullptr);
    result.hash = engine.states().hash();
    const std::uint64_t own = hash_of(readers, communicator.rank());
    const std::lock_guard lock(mutex);
    if (common && !(*common == result)) fail("ranks disagree");
    common = result;
    read += own;
  });
  common->read = read;
  return *common;
}

}  // namespace zero::toy
