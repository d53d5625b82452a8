// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "base/consecutive.h"
#include "base/file_text.h"
#include "base/host.h"
#include "base/whole_number.h"
#include "bench/section.h"
#include "bench/stepper.h"
#include "bench/timing.h"
#include "collectives/backends.h"
#include "collectives/checked_backend.h"
#include "collectives/host_values.h"
#include "collectives/operation.h"
#include "launch/flight/flight_file.h"
#include "launch/flight/flight_recorder.h"
#include "launch/watch/watchdog.h"

namespace zero::bench {
namespace {

constexpr int kRecords = 200'000;

constexpr double kMostNanoseconds = 100;  // a record
constexpr double kMostPercent = 1;        // of a step, recorder and watchdog
constexpr double kMostMiB = 16;           // a rank

/// Memory of this process with its share of pages that several map, in MiB; 0 if the system does
/// not tell.
double proportional_mib() {
  const auto kib = number_behind(file_text("/proc/self/smaps_rollup"), "Pss:");
  return static_cast<double>(kib.value_or(0)) / 1024;
}

/// Passes units on to the recorder while there is one.
class Switch final : public UnitsOnlyListener {
 public:
  void turn(FlightRecorder* recorder) { recorder_ = recorder; }
  void unit(std::string_view name, Phase phase) override {
    if (recorder_ != nullptr) recorder_->unit(name, phase);
  }

 private:
  FlightRecorder* recorder_ = nullptr;
};

/// What zero_train has beside a rank's steps: flight file, recorder and, with peers, the watchdog.
class Watched {
 public:
  Watched(Communicator& ranks, Device& device)
      : ranks_(ranks),
        device_(device),
        file_(FlightFile::create("", ranks.rank(), ranks.size())),
        recorder_(file_) {
    recorder_.know_group(ranks, "world", consecutive(0, ranks.size()));
  }

  /// Begins a step. Collective.
  void begin(std::int64_t step, Switch& units) {
    listening_.emplace(ranks_, recorder_);
    units.turn(&recorder_);
    if (ranks_.size() > 1) {
      watchdog_.emplace(ranks_, device_, file_, WatchdogOptions{});
      watchdog_->watch();
    }
    recorder_.phase(step, "forward");
  }
  void end(std::int64_t step, Switch& units) {
    recorder_.phase(step, "between steps");
    watchdog_.reset();
    units.turn(nullptr);
    listening_.reset();
  }
  std::int64_t bytes() const { return static_cast<std::int64_t>(file_.bytes()); }

 private:
  Communicator& ranks_;
  Device& device_;
  FlightFile file_;
  FlightRecorder recorder_;
  std::optional<Listening> listening_{};
  std::optional<Watchdog> watchdog_{};
};

/// Training with and without what notices faults, step by step in turns.
class Faults final : public Section {
 public:
  std::string name() const override { return "faults"; }
  std::string summary() const override {
    return "what noticing faults costs: of a record, of a step with many short units, in memory";
  }
  void add_options(CLI::App& command) override {
    command.add_option("--recorded-steps", steps_, "steps with and without what is measured, each")
        ->capture_default_str()
        ->check(CLI::Range(1, 1 << 20));
  }

  void run(Context& context) override {
    context.alone([&] { measure_records(context.report()); });
    measure_watched(context);
    measure_collectives(context);
    measure_compute(context);
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
                  .unit = "ns",
                  .limit = kMostNanoseconds});
    }
  }

  /// A step of many short units: the worst for what each unit costs.
  static TrainConfig config_of(const Context& context, std::vector<std::string> overrides = {}) {
    return make_config(
        {.model =
             {{"layers", 12}, {"width", 128}, {"heads", 2}, {"context", 128}, {"vocabulary", 1024}},
         .batch = context.size(),
         .sequence = 128,
         .stage = 3,
         .world = context.size(),
         .overrides = std::move(overrides)});
  }

  /// Times steps in turn, each pair in the other order than the one before. Collective.
  void compare(Context& context, const std::string& what, double limit,
               const std::function<double(bool guarded)>& step) const {
    Communicator& ranks = context.communicator();
    const auto device = cpu::open();
    const auto slowest = [&](bool guarded) {
      double seconds = step(guarded);
      host_all_reduce(ranks, *device, View::of(std::span(&seconds, 1)), ReduceOp::max,
                      {.purpose = "seconds of a step"});
      return seconds;
    };
    for (const bool guarded : {false, true}) slowest(guarded);
    std::vector<double> with;
    std::vector<double> without;
    std::vector<double> percent;
    for (int pair = 0; pair < steps_; ++pair) {
      for (const bool guarded : {pair % 2 != 0, pair % 2 == 0}) {
        (guarded ? with : without).push_back(slowest(guarded));
      }
      percent.push_back(100 * (with.back() / without.back() - 1));
    }
    std::ranges::sort(percent);
    const auto quantile = [&](double part) {
      return percent[static_cast<std::size_t>(part * static_cast<double>(percent.size() - 1))];
    };
    const Timing guarded = bench::summary(with);
    const Timing plain = bench::summary(without);
    context.report().add({.section = name(),
                          .name = "a step of 14 units with " + what + ", beside one without",
                          .ranks = ranks.size(),
                          .value = 1e3 * guarded.median,
                          .best = 1e3 * guarded.best,
                          .unit = "ms",
                          .limit = 1e3 * plain.median});
    context.report().add({.section = name(),
                          .name = "of a step that " + what + " costs",
                          .ranks = ranks.size(),
                          .value = quantile(0.5),
                          .best = percent.front(),
                          .unit = "%",
                          .limit = limit});
    context.report().note(fmt::format(
        "{}: half of {} pairs of steps lie between {:+.2f} % and {:+.2f} %, all between {:+.2f} % "
        "and {:+.2f} %",
        what, steps_, quantile(0.25), quantile(0.75), percent.front(), percent.back()));
  }

  void measure_watched(Context& context) const {
    Communicator& ranks = context.communicator();
    const TrainConfig config = config_of(context);
    const auto device = cpu::open({.threads = 1});
    Switch units;
    Stepper stepper(config, ranks, *device, &units);
    stepper.seconds(2);  // takes what memory steps take
    const auto memory = [&] {
      const auto meet = [&] {
        ranks.barrier(device->communication(), {.purpose = "memory of ranks"});
        device->communication().synchronize();
      };
      meet();
      const double mib = proportional_mib();
      meet();
      return mib;
    };
    const double before = memory();
    Watched watched(ranks, *device);
    double most = 0;
    std::int64_t step = 0;
    compare(context, "recorder and watchdog", kMostPercent, [&](bool guarded) {
      if (!guarded) return stepper.seconds(1);
      watched.begin(++step, units);
      const double seconds = stepper.seconds(1);
      if (step == 1) most = memory();
      watched.end(step, units);
      return seconds;
    });
    const int in_process = ranks.backend() == BackendKind::local ? ranks.size() : 1;
    if (before == 0 || most == 0) {
      return context.report().note("memory of a rank: the system has no /proc/self/smaps_rollup");
    }
    context.report().add({.section = name(),
                          .name = "memory of a rank's recorder and watchdog; bytes: mapped",
                          .ranks = ranks.size(),
                          .bytes = watched.bytes(),
                          .value = (most - before) / in_process,
                          .best = (most - before) / in_process,
                          .unit = "MiB",
                          .limit = kMostMiB});
  }

  void measure_collectives(Context& context) const {
    Communicator& ranks = context.communicator();
    if (ranks.size() == 1) return;
    const TrainConfig config = config_of(context);
    const auto device = cpu::open({.threads = 1});
    Communicator checked(checked_backend(ranks, host_name()));
    Stepper plain(config, ranks, *device);
    Stepper guarded(config, checked, *device);
    compare(context, "run.check_collectives", 0,
            [&](bool checks) { return (checks ? guarded : plain).seconds(1); });
  }

  void measure_compute(Context& context) const {
    Communicator& ranks = context.communicator();
    const TrainConfig config = config_of(context);
    const TrainConfig checking = config_of(context, {"run.check_compute_every=1"});
    const auto device = cpu::open({.threads = 1});
    Stepper plain(config, ranks, *device);
    Stepper guarded(checking, ranks, *device);
    compare(context, "run.check_compute_every=1", 0,
            [&](bool checks) { return (checks ? guarded : plain).seconds(1); });
  }

  int steps_ = 20;
};

}  // namespace

std::unique_ptr<Section> faults_section() { return std::make_unique<Faults>(); }

}  // namespace zero::bench
