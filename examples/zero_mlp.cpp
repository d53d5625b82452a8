// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
// A complete custom trainer: twelve linear layers with ReLU between them learn one batch by heart.
// Prints what is live after each phase of the first step, and what is allocated.
//   zero_mlp [stage] [steps]                        mpirun -np 4 zero_mlp 3 20
#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <initializer_list>
#include <numeric>

#include "zero/collectives/backends.h"
#include "zero/device/memory_monitor.h"
#include "zero/engine/engine.h"

constexpr int kLayers = 12, kRows = 32, kWidth = 1024, kElements = kRows * kWidth;

float* row(zero::View view, int index) { return view.as<float>().data() + index * kWidth; }
void add_scaled(float* to, float scale, const float* from) {
  for (int i = 0; i < kWidth; ++i) to[i] += scale * from[i];
}

/// y (rows, out) = max(x, 0) (rows, in) weight (in, out) + bias (out).
void forward(zero::View weight, zero::View bias, zero::View x, zero::View y) {
  for (int r = 0; r < kRows; ++r) {
    std::copy_n(row(bias, 0), kWidth, row(y, r));
    for (int in = 0; in < kWidth; ++in)
      add_scaled(row(y, r), std::max(row(x, r)[in], 0.0F), row(weight, in));
  }
}

/// The layer's gradients from dy (rows, out). The gradient of x takes the place of x.
void backward(zero::View weight, zero::View dweight, zero::View dbias, zero::View dy,
              zero::View x) {
  std::fill_n(row(dbias, 0), kWidth, 0.0F);
  for (int r = 0; r < kRows; ++r) add_scaled(row(dbias, 0), 1.0F, row(dy, r));
  for (int in = 0; in < kWidth; ++in) {
    std::fill_n(row(dweight, in), kWidth, 0.0F);
    for (int r = 0; r < kRows; ++r) {
      const float value = row(x, r)[in];
      const float slope = std::transform_reduce(row(dy, r), row(dy, r + 1), row(weight, in), 0.0F);
      add_scaled(row(dweight, in), std::max(value, 0.0F), row(dy, r));
      row(x, r)[in] = value > 0.0F ? slope : 0.0F;
    }
  }
}

/// The rank's batch, the same in every step.
void fill(zero::View input, zero::View target, int rank) {
  for (int i = 0; i < kElements; ++i) {
    row(input, 0)[i] = std::abs(std::sin(0.1F * i + rank));
    row(target, 0)[i] = std::sin(0.2F * i + rank);
  }
}

/// This rank's part of the mean squared error, and its gradient in dy.
double error(zero::View y, zero::View target, zero::View dy, int ranks) {
  double sum = 0, share = 1.0 / (1.0 * kElements * ranks);
  for (int i = 0; i < kElements; ++i) {
    const double difference = row(y, 0)[i] - row(target, 0)[i];
    sum += difference * difference * share;
    row(dy, 0)[i] = static_cast<float>(2 * difference * share);
  }
  return sum;
}

/// What is live: the classes of memory that work has filled so far. They stay, as nothing here is
/// given back, so that what is live grows to what is allocated.
class Phases {
 public:
  Phases(zero::Device& device, bool prints) : monitor_(device), prints_(prints) {}

  /// After the work of `phase`, the first to fill these classes.
  void end(const char* phase, std::initializer_list<zero::MemoryClass> filled) {
    const zero::MemorySnapshot& memory = monitor_.snapshot(phase).memory;
    filled_.insert(filled_.end(), filled);
    std::int64_t live = 0;
    for (const auto c : filled_) live += memory.current_of(c);
    if (prints_)
      fmt::print("{:10} live {:8.2f} MiB of {:8.2f} MiB allocated\n", phase, live / 1048576.0,
                 memory.total / 1048576.0);
  }

 private:
  zero::MemoryMonitor monitor_;
  std::vector<zero::MemoryClass> filled_;
  bool prints_;
};

void train(zero::Communicator& communicator, int stage, int steps) {
  using enum zero::MemoryClass;
  const auto device = zero::cpu::open();
  const auto target = device->allocate(kElements, zero::DType::fp32, staging, "target");
  const auto slope = device->allocate(kElements, zero::DType::fp32, other, "gradient of the loss");
  std::vector<zero::Buffer> x;  // x[l] (rows, width) is the input of layer l, x[l + 1] its output
  x.push_back(device->allocate(kElements, zero::DType::fp32, staging, "input"));
  zero::Engine engine(communicator, *device, {.stage = stage});
  std::vector<zero::UnitId> layers;
  for (int l = 0; l < kLayers; ++l) {
    zero::ParameterSpec weight{"weight", {kWidth, kWidth}, zero::init::normal(0.044F)};
    layers.push_back(engine.add_unit(fmt::format("layer.{}", l), {weight, {"bias", {kWidth}}}));
    x.push_back(device->allocate(kElements, zero::DType::fp32, activations, "stored"));
  }
  const std::int64_t own = device->ledger().snapshot().total;
  engine.seal();  // fixes shards, schedule and memory
  if (communicator.rank() == 0)
    fmt::print("seal() allocated {:.2f} MiB\n",
               (device->ledger().snapshot().total - own) / 1048576.0);
  // Memory of the device, leases' views too, is accessed by work of its streams alone.
  zero::Stream& compute = device->compute();
  Phases phases(*device, communicator.rank() == 0);
  for (int step = 0; step < steps; ++step) {
    compute.submit("batch",
                   [&, rank = communicator.rank()] { fill(x[0].view(), target.view(), rank); });
    if (step == 0) phases.end("batch", {parameters, staging});
    for (int l = 0; l < kLayers; ++l) {
      const auto lease = engine.forward(layers[l]);  // gathers layer l
      compute.submit("forward", [w = lease["weight"], b = lease["bias"], in = x[l].view(),
                                 out = x[l + 1].view()] { forward(w, b, in, out); });
    }  // releases it
    if (step == 0) phases.end("forward", {activations, gathered});
    double loss = 0;
    compute.submit("error", [&, ranks = communicator.size()] {
      loss = error(x[kLayers].view(), target.view(), slope.view(), ranks);
    });
    if (step == 0) phases.end("loss", {other});
    for (int l = kLayers; l-- > 0;) {
      const auto lease = engine.backward(layers[l]);
      const zero::View dy = l + 1 < kLayers ? x[l + 1].view() : slope.view();
      compute.submit("backward", [w = lease.parameter("weight"), dw = lease.gradient("weight"),
                                  db = lease.gradient("bias"), dy,
                                  in = x[l].view()] { backward(w, dw, db, dy, in); });
    }  // starts the reduction
    if (step == 0) phases.end("backward", {gradients, communication});
    const auto report = engine.step({.learning_rate = 1e-4, .losses = {&loss, 1}});
    if (step == 0) phases.end("step", {optimizer});
    if (communicator.rank() == 0) fmt::print("step {:3}  loss {:.6f}\n", report.step, report.loss);
  }
  if (communicator.rank() != 0) return;
  const zero::MemorySnapshot ledger = device->ledger().snapshot();
  for (const auto c : zero::all_memory_classes())
    fmt::print("{:16} {:8.3f} MiB\n", zero::name_of(c), ledger.current_of(c) / 1048576.0);
  for (const auto& [label, bytes] : ledger.labels)  // "class/what"; prints only the batch
    if (label.starts_with("staging/")) fmt::print("{:16} {:8.3f} MiB\n", label, bytes / 1048576.0);
}

int main(int argc, char** argv) try {
  bool good = argc <= 3;
  const auto argument = [&](int at, int low, int high, int fallback) {
    if (argc <= at) return fallback;
    char* end = nullptr;
    const long value = std::strtol(argv[at], &end, 10);
    good = good && end != argv[at] && *end == '\0' && low <= value && value <= high;
    return static_cast<int>(value);
  };
  const int stage = argument(1, 0, 3, 3), steps = argument(2, 1, 1'000'000, 20);
  if (!good) {
    fmt::print(stderr, "usage: zero_mlp [stage, 0-3] [steps, from 1]\n");
    return 1;
  }
  const auto body = [&](zero::Communicator& communicator) { train(communicator, stage, steps); };
  zero::mpi::available() ? body(*zero::mpi::world(&argc, &argv)) : zero::local::run(1, body);
} catch (const std::exception& error) {
  fmt::print(stderr, "zero_mlp: {}\n", error.what());
  zero::mpi::abort(1);
}
