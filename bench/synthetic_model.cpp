// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#include "bench/synthetic_model.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/checked_math.h"
#include "bench/timing.h"

namespace zero::bench {
namespace {

constexpr std::size_t kTile = 4096;  // floats: 16 KiB

/// Stage 3 gathers every unit, however few ranks and units there are.
EngineOptions gathering_options(int stage, std::optional<std::int64_t> prefetch) {
  EngineOptions options = measured_options(stage);
  options.limits.prefetch_elements = prefetch;
  options.limits.persistence_threshold = 0;
  return options;
}

}  // namespace

EngineOptions measured_options(int stage) {
  EngineOptions options;
  options.stage = stage;
  options.compute = DType::bf16;
  options.gradient_clipping = 1.0;
  options.checked = false;
  return options;
}

SyntheticModel::SyntheticModel(Communicator& communicator, int units, std::int64_t elements,
                               int stage, std::optional<std::int64_t> prefetch)
    : communicator_(communicator),
      device_(cpu::open()),
      engine_(communicator, *device_, gathering_options(stage, prefetch)),
      elements_(round_up(elements, std::int64_t{64} * communicator.size())),
      tile_(kTile, 1.0F),
      optimizer_(make_optimizer({}, *device_)) {
  for (int i = 0; i < units; ++i) {
    units_.push_back(engine_.add_unit(fmt::format("unit.{}", i),
                                      {{"weight", {elements_}, init::normal(0.02F)}}));
  }
  engine_.seal();
  const auto allocate = [&](std::int64_t count, DType dtype) {
    Buffer buffer = communicator.allocate(*device_, count, dtype, MemoryClass::other, "alone");
    device_->kernels().zero(device_->compute(), buffer.view());
    return buffer;
  };
  full_ = allocate(elements_, DType::bf16);
  workspace_ = allocate(
      communicator.reduce_scatter_workspace(Slices::even(full_.view(), communicator.size())),
      DType::bf16);
  states_ = allocate(3 * owned(), DType::fp32);
  copies_ = allocate(2 * owned(), DType::bf16);
}

std::string SyntheticModel::unit_name(std::ptrdiff_t unit) const {
  return engine_.unit_names()[static_cast<std::size_t>(unit)];
}

std::int64_t SyntheticModel::owned() const {
  const auto all = elements_ * static_cast<std::int64_t>(units_.size());
  return stage() == 0 ? all : all / communicator_.size();
}

/// A fixed amount of work, not a stretch of time: what takes the core away makes it longer. Never
/// inlined: alone and within a step it must be the same code, to the alignment of its loop.
[[gnu::noinline]] void SyntheticModel::arithmetic(std::int64_t rounds) {
  for (std::int64_t round = 0; round < rounds; ++round) {
    for (float& value : tile_) value = value * 0.5F + 0.5F;
  }
}

SyntheticModel::Compute SyntheticModel::compute_of(double seconds) {
  Compute compute{.rounds = 100};
  for (int trial = 0; trial < 3; ++trial) {  // the nearer to the goal, the more like it
    std::vector<double> samples;
    for (int i = 0; i < 3; ++i) {
      settle();
      samples.push_back(seconds_of([&] { compute_alone(compute); }));
    }
    const double scale = seconds / slowest(summary(samples).median);
    compute.rounds = std::max<std::int64_t>(
        1, static_cast<std::int64_t>(static_cast<double>(compute.rounds) * scale));
  }
  return compute;
}

void SyntheticModel::step(const Compute& compute) {
  for (const UnitId unit : units_) {
    const ParameterLease lease = engine_.forward(unit);
    device_->compute().submit("forward", [&] { arithmetic(compute.rounds); });
  }
  for (auto unit = units_.rbegin(); unit != units_.rend(); ++unit) {
    const GradientLease lease = engine_.backward(*unit);
    device_->compute().submit("backward", [&] { arithmetic(2 * compute.rounds); });
    const View gradient = lease.gradient(0);
    if (compute.rounds > 0) device_->kernels().zero(device_->compute(), gradient);
  }
  static_cast<void>(engine_.step({.learning_rate = 1e-6}));
}

void SyntheticModel::compute_alone(const Compute& compute) {
  for (std::size_t i = 0; i < units_.size(); ++i) {
    arithmetic(3 * compute.rounds);
    device_->kernels().zero(device_->compute(), full_.view());
  }
}

void SyntheticModel::first_gather_alone() {
  if (stage() == 0) return;
  const std::int64_t shard = elements_ / communicator_.size();
  communicator_.all_gather(full_.slice(shard * communicator_.rank(), shard),
                           Slices::even(full_.view(), communicator_.size()),
                           device_->communication(), {.purpose = "first gather"});
  device_->communication().synchronize();
}

void SyntheticModel::last_reduce_alone() {
  const std::int64_t shard = elements_ / communicator_.size();
  const View mine = full_.slice(shard * communicator_.rank(), shard);
  const Slices slices = Slices::even(full_.view(), communicator_.size());
  communicator_.reduce_scatter(slices, {.addends = {}, .destination = mine, .norm = nullptr},
                               workspace_.view(), device_->communication(),
                               {.purpose = "last reduce"});
  if (stage() == 0)
    communicator_.all_gather(mine, slices, device_->communication(), {.purpose = "last reduce"});
  device_->communication().synchronize();
}

void SyntheticModel::update_alone() {
  const std::int64_t count = owned();
  optimizer_->update(device_->compute(),
                     {.master = states_.slice(0, count),
                      .moments = {states_.slice(count, count), states_.slice(2 * count, count)},
                      .gradient = copies_.slice(0, count),
                      .compute = copies_.slice(count, count),
                      .learning_rate = 1e-6});
  device_->compute().synchronize();
}

void SyntheticModel::add_exposed(std::span<double> per_unit) const {
  const std::vector<double> by_use = engine_.exposed_by_use();
  for (std::size_t i = 0; i < by_use.size(); ++i) {
    per_unit[static_cast<std::size_t>(engine_.schedule().steps[i].use.unit.index)] += by_use[i];
  }
}

void SyntheticModel::settle() {
  device_->compute().synchronize();
  device_->communication().synchronize();
  communicator_.barrier(device_->communication(), {.purpose = "settle"});
  device_->communication().synchronize();
}

double SyntheticModel::slowest(double value) {
  communicator_.all_reduce(View::of(std::span(&value, 1)), ReduceOp::max, device_->communication(),
                           {.purpose = "slowest"});
  device_->communication().synchronize();
  return value;
}

}  // namespace zero::bench
