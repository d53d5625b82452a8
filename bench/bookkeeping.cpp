// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#include "bench/bookkeeping.h"

#include <fmt/format.h>
#include <unistd.h>

#include <filesystem>
#include <functional>
#include <memory>
#include <nlohmann/json.hpp>
#include <vector>

#include "architecture/family.h"
#include "bench/timing.h"
#include "collectives/local/backend.h"
#include "engine/engine.h"
#include "launch/telemetry/run_log.h"
#include "model/decoder.h"

namespace zero::bench {
namespace {

constexpr double kAllowed = 2;  // percent
constexpr BatchShape kShape{.batch = 8, .sequence = 256};

/// A small GPT-2 in a world of one, on whatever device.
class Small {
 public:
  Small(std::unique_ptr<Device> device, int stage)
      : communicator_(local::single()),
        device_(std::move(device)),
        engine_(*communicator_, *device_, options(stage)),
        model_(engine_,
               decoder_shape({{"family", "gpt2"},
                              {"layers", 12},
                              {"width", 128},
                              {"heads", 4},
                              {"context", 256},
                              {"vocabulary", 256}}),
               kShape),
        tokens_(static_cast<std::size_t>(kShape.batch * kShape.sequence), 1) {
    engine_.seal({.order = model_.order()});
    model_.allocate();
  }

  StepReport step() {
    const View tokens = View::of(std::span(tokens_));
    model_.train(tokens, tokens, 1.0F / static_cast<float>(tokens_.size()),
                 View::of(std::span(&loss_, 1)));
    device_->compute().synchronize();
    return engine_.step({.learning_rate = 1e-4});
  }

 private:
  static EngineOptions options(int stage) {
    EngineOptions options;
    options.stage = stage;
    options.compute = DType::bf16;
    options.gradient_clipping = 1.0;
    options.checked = false;
    return options;
  }

  std::unique_ptr<Communicator> communicator_;
  std::unique_ptr<Device> device_;
  Engine engine_;
  Decoder model_;
  std::vector<std::int32_t> tokens_;
  double loss_ = 0;
};

/// A file for one line of the log per step, gone at the end.
class Scratch {
 public:
  Scratch()
      : path_(std::filesystem::temp_directory_path() / fmt::format("zero_bench.{}", ::getpid())),
        log_(path_.string()) {}
  ~Scratch() {
    std::error_code ignored;
    std::filesystem::remove(path_, ignored);
  }
  Scratch(const Scratch&) = delete;
  Scratch& operator=(const Scratch&) = delete;

  void line(const StepReport& report) {
    log_.write({{"step", report.step},
                {"loss", report.loss},
                {"grad_norm", report.gradient_norm},
                {"learning_rate", 1e-4},
                {"tokens", kShape.batch * kShape.sequence},
                {"step_seconds", 0.0},
                {"tokens_per_second", 0.0},
                {"exposed_communication_seconds", report.exposed_seconds}});
  }

 private:
  std::filesystem::path path_;
  RunLog log_;
};

}  // namespace

void measure_bookkeeping(int threads, Report& report) {
  Scratch log;
  for (int stage = 0; stage <= 3; ++stage) {
    Small real(cpu::open({.threads = threads}), stage);
    Small hollow(planning::open(threads), stage);
    const std::vector<std::function<void()>> cases{[&] { real.step(); },
                                                   [&] { log.line(hollow.step()); }};
    const std::vector<Timing> timings = interleaved(cases, kRounds);
    report.add({.section = "overlap",
                .name = fmt::format("bookkeeping, GPT-2 12 x 128, stage {}", stage),
                .value = 100 * timings[1].median / timings[0].median,
                .best = 100 * timings[1].best / timings[0].best,
                .unit = "%",
                .limit = kAllowed});
    report.note(fmt::format("stage {}: bookkeeping {:.3f} ms of a step of {:.1f} ms", stage,
                            1e3 * timings[1].median, 1e3 * timings[0].median));
  }
}

}  // namespace zero::bench
