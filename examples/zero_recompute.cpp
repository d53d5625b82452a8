// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
// A custom trainer in fp16, with a loss scale, whose layers keep their input alone: backward
// computes the wide part again. A lifetime plan places the activations, a monitor watches them.
//   zero_recompute                                  two ranks, as threads
#include <algorithm>
#include <cmath>

#include "zero/collectives/backends.h"
#include "zero/device/lifetime_plan.h"
#include "zero/device/memory_monitor.h"
#include "zero/engine/engine.h"
#include "zero/ops/ops.h"
#include "zero/optim/loss_scaler.h"

constexpr int kRanks = 2, kSteps = 40, kLayers = 8, kRows = 128, kWidth = 64, kHidden = 256;
constexpr zero::DType kHalf = zero::DType::fp16;
constexpr zero::LinearShape kUp{
    .rows = kRows, .in = kWidth, .out = kHidden, .dtype = kHalf, .weight_gradient = kHalf};
constexpr zero::LinearShape kDown{
    .rows = kRows, .in = kHidden, .out = kWidth, .dtype = kHalf, .weight_gradient = kHalf};

/// The activations. Layer l is computed at step l, the loss at step kLayers, layer l's gradients at
/// step 2 kLayers - l. x is a layer's input and dx its gradient; z and wide are its hidden values
/// before and after GELU. If not `kept`, these live once in forward and once more in backward.
zero::LifetimePlan plan_activations(bool kept) {
  constexpr std::int64_t narrow = 2 * kRows * kWidth, wide = 2 * kRows * kHidden;
  zero::LifetimePlan plan;
  for (int l = 0; l <= kLayers; ++l) {
    const int back = 2 * kLayers - l;
    plan.add(fmt::format("x {}", l), narrow, std::max(l - 1, 0), back);
    plan.add(fmt::format("dx {}", l), narrow, back, std::min(back + 1, 2 * kLayers));
    for (const char* tensor : {"z", "wide"}) {
      if (l < kLayers) plan.add(fmt::format("{} {}", tensor, l), wide, l, kept ? back : l);
      if (l < kLayers && !kept) plan.add(fmt::format("{} {} again", tensor, l), wide, back, back);
    }
  }
  plan.place();
  return plan;
}

/// y = x + down(gelu(up(x)))
struct Layer {
  zero::View x, z, wide, y;

  void widen(zero::Ops& ops, const zero::Lease& unit) const {
    ops.linear_forward(kUp, x, unit.at(0), unit.at(1), z);
    ops.gelu_forward(z, wide);
  }
  void forward(zero::Ops& ops, const zero::ParameterLease& unit) const {
    widen(ops, unit);
    ops.linear_forward(kDown, wide, unit["down"], {}, y);
    ops.add(y, x, y);
  }
  void backward(zero::Ops& ops, const zero::GradientLease& unit, zero::View dy,
                zero::View dx) const {
    using enum zero::Write;
    widen(ops, unit);  // again
    ops.linear_backward_weight(kDown, wide, dy, unit.gradient("down"), overwrite);
    ops.linear_backward_input(kDown, dy, unit.parameter("down"), wide);  // the gradient of wide
    ops.gelu_backward({kRows, kHidden, kHalf}, z, wide, {}, unit.gradient("bias"));  // and of z
    ops.linear_backward_weight(kUp, x, wide, unit.gradient("up"), overwrite);
    ops.linear_backward_input(kUp, wide, unit.parameter("up"), dx);
    ops.add(dx, dy, dx);
  }
};

/// This rank's part of the mean squared distance from y to a wave; its gradient, times `scale`.
double error(zero::View y, zero::View dy, double scale) {
  double sum = 0;
  const double share = 1.0 / (kRows * kWidth * kRanks);
  for (std::size_t i = 0; i < kRows * kWidth; ++i) {
    const double difference =
        to_float(y.as<zero::float16>()[i]) - std::sin(0.2 * static_cast<double>(i));
    sum += difference * difference * share;
    dy.as<zero::float16>()[i] =
        zero::to_float16(static_cast<float>(2 * difference * share * scale));
  }
  return sum;
}

void report(const zero::LifetimePlan& plan, const zero::MemoryMonitor& monitor) {
  const zero::LifetimePlan kept = plan_activations(true);
  fmt::print(
      "activations in KiB: {} in a buffer for each, {} in places that are used again, {} if "
      "hidden values are computed again; no plan of these takes less than {}\n",
      kept.without_reuse() / 1024, kept.total() / 1024, plan.total() / 1024,
      plan.lower_bound() / 1024);
  const zero::MemoryMoment& last = monitor.moments().back();
  fmt::print("peak {} bytes, reserved {}, growing labels {}\n", last.memory.peak_total,
             last.reserved, monitor.leaks(1).size());
}

void train(zero::Communicator& communicator) {
  const auto device = zero::cpu::open();
  zero::Engine engine(communicator, *device, {.stage = 3, .compute = kHalf});
  std::vector<zero::UnitId> units;
  for (int l = 0; l < kLayers; ++l)
    units.push_back(engine.add_unit(fmt::format("layer.{}", l),
                                    {{"up", {kWidth, kHidden}, zero::init::normal(0.1F)},
                                     {"bias", {kHidden}},
                                     {"down", {kHidden, kWidth}, zero::init::normal(0.02F)}}));
  engine.seal();
  const auto ops = zero::make_ops(*device);
  ops->prepare(kUp, zero::Ops::LinearUse::training);
  ops->prepare(kDown, zero::Ops::LinearUse::training);
  ops->prepare(zero::MatrixShape{kRows, kHidden, kHalf});
  ops->allocate_scratch();
  const zero::LifetimePlan plan = plan_activations(false);
  const zero::Buffer block =
      device->allocate(plan.total(), zero::DType::u8, zero::MemoryClass::activations, "planned");
  const auto at = [&](const char* tensor, int l, const char* use = "") {
    const auto& place = plan.at(fmt::format("{} {}{}", tensor, l, use));
    return block.slice(place.offset, place.bytes).reinterpret(kHalf, place.bytes / 2);
  };
  zero::LossScaleRule rule = zero::LossScaleRule::grad_scaler();
  rule.initial = 1 << 24;  // far too large: the first steps overflow, are skipped, and halve it
  zero::LossScaler scaler(rule);
  zero::MemoryMonitor monitor(*device);
  for (int step = 1; step <= kSteps; ++step) {
    double loss = 0;
    device->compute().submit("batch", [x = at("x", 0), rank = communicator.rank()] {
      for (int i = 0; i < kRows * kWidth; ++i)
        x.as<zero::float16>()[i] = zero::to_float16(std::sin(0.1F * static_cast<float>(i) + rank));
    });
    for (int l = 0; l < kLayers; ++l)
      Layer{at("x", l), at("z", l), at("wide", l), at("x", l + 1)}.forward(
          *ops, engine.forward(units[l]));
    device->compute().submit("error", [&, y = at("x", kLayers), dy = at("dx", kLayers)] {
      loss = error(y, dy, scaler.scale());
    });
    for (int l = kLayers; l-- > 0;)
      Layer{at("x", l), at("z", l, " again"), at("wide", l, " again"), {}}.backward(
          *ops, engine.backward(units[l]), at("dx", l + 1), at("dx", l));
    const auto result =
        engine.step({.learning_rate = 1e-3, .loss_scale = scaler.scale(), .losses = {&loss, 1}});
    if (communicator.rank() == 0)
      fmt::print("step {:3}  loss {:.6f}  scale {:.0f}  {}\n", step, result.loss, scaler.scale(),
                 result.nonfinite ? "skipped: " + *result.nonfinite : "");
    const auto change = scaler.update(result.nonfinite.has_value());
    if (change == zero::LossScaleChange::exhausted) zero::fail("the loss scale is exhausted");
    monitor.snapshot(fmt::format("step {}", step));
  }
  if (communicator.rank() == 0) report(plan, monitor);
}

int main() try { zero::local::run(kRanks, train); } catch (const std::exception& error) {
  fmt::print(stderr, "zero_recompute: {}\n", error.what());
  return 1;
}
