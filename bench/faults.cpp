// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "bench/section.h"
#include "bench/stepper.h"
#include "bench/timing.h"
#include "collectives/backends.h"
#include "collectives/host_values.h"
#include "collectives/operation.h"
#include "launch/faults/flight_file.h"
#include "launch/faults/flight_recorder.h"

namespace zero::bench {
namespace {

constexpr int kRecords = 200'000;

/// Passes units on to the recorder while that is asked for.
class Switch final : public UnitsOnlyListener {
 public:
  explicit Switch(FlightRecorder& recorder) : recorder_(recorder) {}
  void turn(bool on) { on_ = on; }
  void unit(std::string_view name, Phase phase) override {
    if (on_) recorder_.unit(name, phase);
  }

 private:
  FlightRecorder& recorder_;
  bool on_ = false;
};

/// Training with and without the flight recorder, step by step in turns.
class Faults final : public Section {
 public:
  std::string name() const override { return "faults"; }
  std::string summary() const override {
    return "what the flight recorder costs: of a record, and of a step with many short units";
  }
  void add_options(CLI::App& command) override {
    command.add_option("--recorded-steps", steps_, "steps with and without the recorder, each")
        ->capture_default_str()
        ->check(CLI::Range(1, 1 << 20));
  }

  void run(Context& context) override {
    context.alone([&] { measure_records(context.report()); });
    measure_steps(context);
  }

 private:
  void measure_records(Report& report) const {
    FlightFile file = FlightFile::create("", 0, 2);
    const std::uint32_t group = file.add_group("shard", {0, 1});
    const FlightFile::Submission gather{
        .operation = static_cast<std::uint8_t>(Operation::all_gather),
        .group = group,
        .name = "h.7",
        .bytes = 1 << 20};
    const std::vector<std::function<void()>> cases{[&] {
                                                     for (int i = 0; i < kRecords; ++i)
                                                       file.submit(gather);
                                                   },
                                                   [&] {
                                                     for (int i = 0; i < kRecords; ++i)
                                                       file.compute("h.7", Phase::backward);
                                                   }};
    const std::vector<Timing> times = interleaved(cases, kRounds);
    for (std::size_t i = 0; i < cases.size(); ++i) {
      report.add({.section = name(),
                  .name = i == 0 ? "a collective's record" : "a unit's record",
                  .bytes = static_cast<std::int64_t>(file.bytes()),
                  .value = 1e9 * times[i].median / kRecords,
                  .best = 1e9 * times[i].best / kRecords,
                  .unit = "ns"});
    }
  }

  void measure_steps(Context& context) const {
    Communicator& ranks = context.communicator();
    FlightFile file = FlightFile::create("", ranks.rank(), ranks.size());
    FlightRecorder recorder(file);
    Switch units(recorder);
    const TrainConfig config = make_config(
        {.model =
             {{"layers", 12}, {"width", 128}, {"heads", 2}, {"context", 128}, {"vocabulary", 1024}},
         .batch = ranks.size(),
         .sequence = 128,
         .stage = 3,
         .world = ranks.size()});
    const auto device = cpu::open({.threads = 1});
    Stepper stepper(config, ranks, *device, &units);
    std::vector<double> with;
    std::vector<double> without;
    for (int step = -2; step < 2 * steps_; ++step) {
      const bool records = step % 2 != 0;
      std::optional<Listening> listening;
      if (records) listening.emplace(ranks, recorder);
      units.turn(records);
      double seconds = stepper.seconds(1);
      host_all_reduce(ranks, *device, View::of(std::span(&seconds, 1)), ReduceOp::max,
                      {.purpose = "seconds of a step"});
      if (step >= 0) (records ? with : without).push_back(seconds);
    }
    const Timing recorded = bench::summary(with);
    const Timing plain = bench::summary(without);
    context.report().add({.section = name(),
                          .name = "a step of 14 units with the recorder, beside one without",
                          .ranks = ranks.size(),
                          .dtype = std::string(name_of(config.engine.compute)),
                          .value = 1e3 * recorded.median,
                          .best = 1e3 * recorded.best,
                          .unit = "ms",
                          .limit = 1e3 * plain.median});
  }

  int steps_ = 20;
};

}  // namespace

std::unique_ptr<Section> faults_section() { return std::make_unique<Faults>(); }

}  // namespace zero::bench
