// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
// A custom trainer that is cut and goes on: each start does a few steps, then saves. Start it
// again, with another number of ranks or another stage: the losses continue as if it had never
// ended.
//   zero_resume FOLDER [stage] [steps]              mpirun -np 4 zero_resume /tmp/run 3 5
#include <fmt/core.h>

#include <cstdlib>
#include <exception>
#include <nlohmann/json.hpp>
#include <span>
#include <string>

#include "zero/checkpoint/checkpointer.h"
#include "zero/collectives/backends.h"
#include "zero/engine/engine.h"

constexpr int kWidth = 256, kData = 8;  // each step takes all data, wherever they are computed

/// Half the squared distance between each row of `target` and the weights, and its gradient.
double error(std::span<const float> weight, std::span<float> gradient, int first, int last) {
  double sum = 0;
  for (int i = 0; i < kWidth; ++i) {
    gradient[i] = 0;
    for (int row = first; row < last; ++row) {
      const float difference = weight[i] - static_cast<float>((i * 7 + row * 3) % 11);
      gradient[i] += difference / kData;
      sum += 0.5 * difference * difference / kData;
    }
  }
  return sum;
}

void train(zero::Communicator& communicator, const std::string& folder, int stage, int steps) {
  const auto device = zero::cpu::open();
  zero::Engine engine(communicator, *device, {.stage = stage});
  const zero::UnitId unit = engine.add_unit("layer", {{"weight", {kWidth}}});
  engine.seal();
  zero::Checkpointer checkpointer(engine, {.folder = folder, .keep_last = 2});

  // The trainer's own values come back with the states: here what it has seen.
  nlohmann::ordered_json extra{{"rows", 0}};
  const auto take = [&](const nlohmann::ordered_json& saved) { extra = saved; };
  const auto resumed = checkpointer.load("auto", take);
  const bool first = communicator.rank() == 0;
  if (first && resumed)
    fmt::print("goes on from {}, {} rows seen\n", resumed->folder, extra["rows"].dump());

  const int rank = communicator.rank(), ranks = communicator.size();
  for (int i = 0; i < steps; ++i) {
    {
      const zero::ParameterLease weights = engine.forward(unit);
    }  // this model computes in backward alone
    double loss = 0;
    {
      const zero::GradientLease lease = engine.backward(unit);
      const auto work = [&, weight = lease.parameter("weight"), to = lease.gradient("weight")] {
        loss = error(weight.as<const float>(), to.as<float>(), kData * rank / ranks,
                     kData * (rank + 1) / ranks);
      };
      device->compute().submit("error", work);  // device memory is for work of a stream alone
    }
    const zero::StepReport report = engine.step({.learning_rate = 0.05, .losses = {&loss, 1}});
    extra["rows"] = kData * report.step;
    if (first) fmt::print("step {:3}  loss {:.6f}\n", report.step, report.loss);
  }
  checkpointer.save(extra);  // written while a next step computes; here there is none
  checkpointer.wait();
  const auto report = checkpointer.report();
  if (first && report) fmt::print("{}\n", report->error.empty() ? "saved" : report->error);
}

int main(int argc, char** argv) try {
  const int stage = argc > 2 ? std::atoi(argv[2]) : 3, steps = argc > 3 ? std::atoi(argv[3]) : 5;
  if (argc < 2 || argc > 4 || argv[1][0] == '-' || stage < 0 || stage > 3 || steps < 1) {
    fmt::print(stderr, "usage: zero_resume FOLDER [stage, 0-3] [steps, from 1]\n");
    return 1;
  }
  const auto body = [&](zero::Communicator& communicator) {
    train(communicator, argv[1], stage, steps);
  };
  zero::mpi::available() ? body(*zero::mpi::world(&argc, &argv)) : zero::local::run(1, body);
} catch (const std::exception& error) {
  fmt::print(stderr, "zero_resume: {}\n", error.what());
  zero::mpi::abort(1);
}
