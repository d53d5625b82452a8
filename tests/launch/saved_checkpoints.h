// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <gtest/gtest.h>

#include <cstdint>
#include <fstream>
#include <string>

#include "checkpoint/checkpointer.h"
#include "collectives/backends.h"
#include "engine/engine.h"
#include "tests/scratch.h"
#include "weights/checkpoint_name.h"

namespace zero::testing {

/// Checkpoints of a small engine: one a step, of which each changes "layer.weight".
class Saved {
 public:
  static constexpr std::int64_t kRows = 30;

  explicit Saved(std::int64_t steps, std::int64_t file_bytes = 1 << 20) {
    local::run(1, [&](Communicator& communicator) {
      const auto device = cpu::open();
      Engine engine(communicator, *device, {});
      const UnitId unit =
          engine.add_unit("layer", {{"weight", {kRows, 20}, init::normal(0.5F)}, {"bias", {20}}});
      engine.seal();
      Checkpointer checkpointer(
          engine, {.folder = folder(),
                   .file_bytes = file_bytes,
                   .weight_files = {{"config.json", R"({"torch_dtype":"float32","x":1})"}}});
      for (std::int64_t step = 1; step <= steps; ++step) {
        { const auto weights = engine.forward(unit); }
        {
          const auto lease = engine.backward(unit);
          for (const char* name : {"weight", "bias"}) {
            for (float& value : lease.gradient(name).as<float>()) value = 0.5F;
          }
        }
        engine.step({.learning_rate = 0.1});
        checkpointer.save({{"configuration", {{"run.seed", step}}}});
        checkpointer.wait();
        const auto report = checkpointer.report();
        EXPECT_EQ(report->error, "");
      }
    });
  }

  const Scratch& root() const { return root_; }
  std::string folder() const { return root_.path("ck"); }
  std::string at(std::int64_t step) const { return checkpoint_path(folder(), {.step = step}); }
  void damage(std::int64_t step, const std::string& file) const {
    std::fstream stream(at(step) + "/" + file, std::ios::in | std::ios::out | std::ios::binary);
    stream.seekp(-3, std::ios::end);
    stream.put('\x5a');
  }

 private:
  Scratch root_;
};

}  // namespace zero::testing
