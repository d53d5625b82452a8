// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
// A custom trainer of tensor-parallel layers: MLPs learn one batch by heart. Each is cut over
// `tensor` ranks, and the stage shards it over the other ranks.
//   zero_tensor_mlp [tensor] [stage] [steps]        mpirun -np 4 zero_tensor_mlp 2 3 20
#include <cmath>
#include <cstdlib>

#include "zero/collectives/backends.h"
#include "zero/engine/engine.h"
#include "zero/model/parallel_linear.h"

constexpr int kLayers = 6, kRows = 64, kWidth = 256, kHidden = 1024;
constexpr zero::DType kType = zero::DType::fp32;

/// y = down(gelu(up(x))). `up` is cut by its outputs and `down` by its inputs, so nothing crosses
/// ranks between them; y is the sum of the ranks' parts. All layers share one Mlp.
struct Mlp {
  zero::ColumnParallelLinear up;
  zero::RowParallelLinear down;
  zero::MatrixShape hidden;  // this rank's columns

  explicit Mlp(zero::TensorParallel& tensor)
      : up(tensor, {.whole = linear(kWidth, kHidden), .at = {0, 1}, .name = "up"}),
        down(tensor, {.whole = linear(kHidden, kWidth), .at = {2, 3}, .name = "down"}),
        hidden{kRows, up.shape().out, kType} {}

  static zero::LinearShape linear(int in, int out) {
    return {.rows = kRows, .in = in, .out = out, .dtype = kType, .weight_gradient = kType};
  }
  std::vector<zero::ParameterSpec> parameters() const {
    return {up.weight("up.weight", zero::init::normal(0.06F)), up.bias("up.bias"),
            down.weight("down.weight", zero::init::normal(0.06F)), down.bias("down.bias")};
  }
  void prepare(zero::Ops& ops) const {
    up.prepare(ops);
    down.prepare(ops);
    ops.prepare(hidden);
  }
};

/// The activations that each layer keeps for backward, and buffers that all layers share.
struct Activations {
  std::vector<zero::Buffer> x;   // x[l] (rows, width) is the input of layer l, x[l + 1] its output
  std::vector<zero::Buffer> up;  // before GELU: (rows, this rank's hidden)
  zero::Buffer gelu, dup, dx;
};

void forward(zero::Ops& ops, const Mlp& mlp, const zero::ParameterLease& unit, Activations& at,
             std::size_t l) {
  const zero::View x = at.x[l].view(), y = at.x[l + 1].view();
  mlp.up.forward(ops, unit, {.x = x, .gathered = x, .y = at.up[l].view(), .gelu = at.gelu.view()});
  mlp.down.forward(ops, unit, {.x = at.gelu.view(), .partial = y, .y = y});  // y: the full sum
}

/// at.dx holds the gradient of the layer's output on entry and of its input on return.
void backward(zero::Ops& ops, const Mlp& mlp, const zero::GradientLease& unit, Activations& at,
              std::size_t l) {
  const zero::View dx = at.dx.view(), dup = at.dup.view(), x = at.x[l].view();
  mlp.down.backward_input(
      ops, unit, {.dy = dx, .gathered = dx, .dx = dup},
      {.z = at.up[l].view(), .x = at.gelu.view(), .dbias = mlp.up.bias_gradient(unit)});
  mlp.down.backward_parameters(ops, unit, at.gelu.view(), dx);
  mlp.up.backward(ops, unit, {.x = x, .gathered = x, .dy = dup, .partial = dx, .dx = dx});
}

/// This data rank's part of the mean squared error, and its gradient in dy.
double error(zero::View y, zero::View target, zero::View dy, int data_ranks) {
  double sum = 0;
  const double share = 1.0 / (static_cast<double>(y.count()) * data_ranks);
  for (std::size_t i = 0; i < static_cast<std::size_t>(y.count()); ++i) {
    const double difference = y.as<float>()[i] - target.as<float>()[i];
    sum += difference * difference * share;
    dy.as<float>()[i] = static_cast<float>(2 * difference * share);
  }
  return sum;
}

void train(zero::Communicator& world, int tensors, int stage, int steps) {
  using enum zero::MemoryClass;
  const auto device = zero::cpu::open();
  zero::Mesh mesh(world, {.tensor = tensors});  // the other ranks shard the model states
  zero::Engine engine(mesh, *device, {.stage = stage});
  const auto ops = zero::make_ops(*device);
  zero::TensorParallel tensor(engine.mesh().axis(zero::Axis::tensor), *device, kRows, {});
  const Mlp mlp(tensor);
  std::vector<zero::UnitId> layers;
  for (int l = 0; l < kLayers; ++l)
    layers.push_back(engine.add_unit(fmt::format("layer.{}", l), mlp.parameters()));
  engine.seal();
  mlp.prepare(*ops);
  ops->allocate_scratch();
  tensor.allocate();

  const auto take = [&](std::int64_t width, const char* label) {
    return device->allocate(kRows * width, kType, activations, label);
  };
  Activations at;
  at.x.push_back(take(kWidth, "x"));
  for (int l = 0; l < kLayers; ++l) {
    at.x.push_back(take(kWidth, "x"));
    at.up.push_back(take(mlp.hidden.columns, "up"));
  }
  at.gelu = take(mlp.hidden.columns, "gelu");
  at.dup = take(mlp.hidden.columns, "dup");
  at.dx = take(kWidth, "dx");
  const zero::Buffer target = take(kWidth, "target");

  const int data_rank = engine.mesh().data().rank(), data_ranks = engine.mesh().data().size();
  zero::Stream& compute = device->compute();  // memory of the device is for its work alone
  const auto fill = [data_rank, x = at.x[0].view(), y = target.view()] {
    for (std::size_t i = 0; i < kRows * kWidth; ++i) {
      x.as<float>()[i] = std::sin(0.1F * static_cast<float>(i) + data_rank);
      y.as<float>()[i] = std::sin(0.2F * static_cast<float>(i) + data_rank);
    }
  };
  for (int step = 0; step < steps; ++step) {
    compute.submit("batch", fill);  // one batch per tensor group
    for (std::size_t l = 0; l < kLayers; ++l) forward(*ops, mlp, engine.forward(layers[l]), at, l);
    double loss = 0;
    compute.submit("error", [&] {
      loss = error(at.x[kLayers].view(), target.view(), at.dx.view(), data_ranks);
    });
    for (std::size_t l = kLayers; l-- > 0;) backward(*ops, mlp, engine.backward(layers[l]), at, l);
    const auto report = engine.step({.learning_rate = 1e-3, .losses = {&loss, 1}});
    if (world.rank() == 0)
      fmt::print("step {:3}  loss {:.6f}  gradient norm {:.6f}\n", report.step, report.loss,
                 report.gradient_norm);
  }
}

int main(int argc, char** argv) try {
  bool good = argc <= 4;
  const auto argument = [&](int at, int low, int high, int fallback) {
    if (argc <= at) return fallback;
    char* end = nullptr;
    const long value = std::strtol(argv[at], &end, 10);
    good = good && end != argv[at] && *end == '\0' && low <= value && value <= high;
    return static_cast<int>(value);
  };
  const int tensors = argument(1, 1, 1024, 1), stage = argument(2, 0, 3, 3);
  const int steps = argument(3, 1, 1'000'000, 20);
  if (!good) {
    fmt::print(stderr, "usage: zero_tensor_mlp [tensor, from 1] [stage, 0-3] [steps, from 1]\n");
    return 1;
  }
  const auto body = [&](zero::Communicator& world) { train(world, tensors, stage, steps); };
  zero::mpi::available() ? body(*zero::mpi::world(&argc, &argv)) : zero::local::run(1, body);
} catch (const std::exception& error) {
  fmt::print(stderr, "zero_tensor_mlp: {}\n", error.what());
  zero::mpi::abort(1);
}
