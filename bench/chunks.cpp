// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "bench/measured_keys.h"
#include "bench/section.h"
#include "bench/stepper.h"
#include "bench/timing.h"
#include "collectives/host_values.h"

namespace zero::bench {
namespace {

/// Training on the tensor axis alone, one thread a rank.
class ChunkedSteps {
 public:
  ChunkedSteps(std::string name, TrainConfig config, Communicator& communicator)
      : name_(std::move(name)),
        config_(std::move(config)),
        device_(cpu::open({.threads = 1})),
        stepper_(config_, communicator, *device_) {}

  const std::string& name() const { return name_; }
  const TrainConfig& config() const { return config_; }

  /// One step: its seconds and its exposed communication, the mean of all ranks and that of the
  /// rank that waited least: a rank that is late shows on the others, and not on itself.
  void step(Communicator& communicator) {
    double exposed = 0;
    const double seconds = seconds_of([&] { exposed = stepper_.step().exposed_seconds; });
    seconds_.push_back(agreed(communicator, seconds, ReduceOp::sum) / communicator.size());
    exposed_.push_back(agreed(communicator, exposed, ReduceOp::sum) / communicator.size());
    least_.push_back(agreed(communicator, exposed, ReduceOp::min));
  }
  void forget() {
    exposed_.clear();
    least_.clear();
    seconds_.clear();
  }

  Timing exposed() const { return bench::summary(exposed_); }
  Timing least_exposed() const { return bench::summary(least_); }
  Timing seconds() const { return bench::summary(seconds_); }

 private:
  double agreed(Communicator& communicator, double value, ReduceOp op) {
    host_all_reduce(communicator, *device_, View::of(std::span(&value, 1)), op,
                    {.purpose = "seconds of a step"});
    return value;
  }

  std::string name_;
  TrainConfig config_;
  std::unique_ptr<Device> device_;
  Stepper stepper_;
  std::vector<double> exposed_{};
  std::vector<double> least_{};
  std::vector<double> seconds_{};
};

/// Exposed communication of the tensor axis by how many chunks a micro-batch's rows are cut into,
/// step by step in turns.
class Chunks final : public Section {
 public:
  std::string name() const override { return "chunks"; }
  std::string summary() const override {
    return "exposed communication of the tensor axis, by mesh.chunks; see bench/two_hosts.sh";
  }
  void add_options(CLI::App& command) override {
    command.add_option("--chunks", chunks_, "which, beside the first of them (1,2)")
        ->delimiter(',')
        ->check(CLI::Range(1, 1024));
    command.add_option("--layers", layers_, "of the model")->capture_default_str();
    command.add_option("--width", width_, "of the model, 64 a head")->capture_default_str();
    command.add_option("--tokens", tokens_, "of a step's one sequence")->capture_default_str();
    command.add_option("--turns", turns_, "steps of each")
        ->capture_default_str()
        ->check(CLI::Range(1, 1 << 20));
    command.add_option("--also", overrides_, "key.path=value of zero_train's configuration")
        ->allow_extra_args(false);
  }

  void run(Context& context) override {
    check_overrides(overrides_);
    if (context.size() == 1) {
      context.report().note(
          "chunks: needs ranks with a core each: bench/two_hosts.sh 1gbit zero_bench chunks");
      return;
    }
    std::vector<std::unique_ptr<ChunkedSteps>> cases;
    const auto add = [&](std::string name, std::vector<std::string> settings) {
      cases.push_back(std::make_unique<ChunkedSteps>(
          std::move(name), config(context.size(), std::move(settings)), context.communicator()));
    };
    add("no overlap", {"mesh.chunks=1", "zero_optimization.overlap_comm=false"});
    for (const int chunks : chunks_) {
      add(fmt::format("{} chunk(s)", chunks), {fmt::format("mesh.chunks={}", chunks)});
    }
    for (int turn = -1; turn < turns_; ++turn) {
      for (const auto& each : cases) each->step(context.communicator());
      if (turn >= 0) continue;
      for (const auto& each : cases) each->forget();
    }
    for (const auto& each : cases) report(context, *each, *cases.at(1));
  }

 private:
  TrainConfig config(int ranks, std::vector<std::string> settings) const {
    settings.insert(settings.end(), overrides_.begin(), overrides_.end());
    return make_config({.model = {{"layers", layers_},
                                  {"width", width_},
                                  {"heads", width_ / 64},
                                  {"context", tokens_},
                                  {"vocabulary", 50257}},
                        .batch = 1,
                        .sequence = tokens_,
                        .world = ranks,
                        .tensor = ranks,
                        .overrides = std::move(settings)});
  }

  void report(Context& context, const ChunkedSteps& each, const ChunkedSteps& first) const {
    const auto add = [&](std::string_view what, Timing timing, Timing beside) {
      context.report().add({.section = name(),
                            .name = fmt::format("{}: {}", each.name(), what),
                            .ranks = context.size(),
                            .dtype = std::string(name_of(each.config().engine.compute)),
                            .value = 1e3 * timing.median,
                            .best = 1e3 * timing.best,
                            .unit = "ms",
                            .limit = 1e3 * beside.median});
    };
    add("exposed a step", each.exposed(), first.exposed());
    add("exposed, least of ranks", each.least_exposed(), first.least_exposed());
    add("step", each.seconds(), first.seconds());
  }

  std::vector<int> chunks_{1, 2};
  std::int64_t layers_ = 4;
  std::int64_t width_ = 1024;
  std::int64_t tokens_ = 512;
  int turns_ = 20;
  std::vector<std::string> overrides_{};
};

}  // namespace

std::unique_ptr<Section> chunks_section() { return std::make_unique<Chunks>(); }

}  // namespace zero::bench
