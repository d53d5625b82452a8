// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <filesystem>
#include <functional>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "bench/section.h"
#include "bench/small_gpt2.h"
#include "bench/synthetic_model.h"
#include "bench/timing.h"
#include "collectives/backends.h"
#include "engine/engine.h"
#include "launch/telemetry/run_log.h"

namespace zero::bench {
namespace {

constexpr double kAllowed = 2;  // percent
constexpr SmallGpt2::Sizes kSizes{};

/// A file for one line of the log per step, gone at the end.
class ScratchLog {
 public:
  ScratchLog()
      : path_(std::filesystem::temp_directory_path() / fmt::format("zero_bench.{}", ::getpid())),
        log_(path_.string()) {}
  ~ScratchLog() {
    std::error_code ignored;
    std::filesystem::remove(path_, ignored);
  }
  ScratchLog(const ScratchLog&) = delete;
  ScratchLog& operator=(const ScratchLog&) = delete;

  void line(const StepReport& report) {
    log_.write({{"step", report.step},
                {"loss", report.loss},
                {"grad_norm", report.gradient_norm},
                {"learning_rate", 1e-4},
                {"tokens", kSizes.batch.batch * kSizes.batch.sequence},
                {"step_seconds", 0.0},
                {"tokens_per_second", 0.0},
                {"exposed_communication_seconds", report.exposed_seconds}});
  }

 private:
  std::filesystem::path path_;
  RunLog log_;
};

/// Measures, per stage, the host's work other than computing in a step of a small GPT-2 (12 layers
/// of width 128, 8 x 256 tokens): leases, schedule, submissions, ledger, checks, and a log line.
/// The step is timed on a device that drops all work, and reported in percent of a step on the CPU
/// with `threads` threads. The limit is the largest percentage allowed.
void measure_bookkeeping(int threads, Report& report) {
  ScratchLog log;
  for (int stage = 0; stage <= 3; ++stage) {
    SmallGpt2 real(cpu::open({.threads = threads}), measured_options(stage), kSizes);
    SmallGpt2 hollow(planning::open(threads), measured_options(stage), kSizes);
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

/// A synthetic model, and how much it computes beside what it communicates.
struct OverlapCases {
  int units = 12;
  std::int64_t elements = 1 << 20;  ///< parameters of a unit
  int rounds = 5;
  std::vector<int> stages{0, 1, 2, 3};
  std::vector<double> shares{0.3, 0.6, 1.0};
  std::optional<std::int64_t> prefetch{};  ///< elements; unset: as the engine chooses
};

/// What of a step cannot be hidden, in seconds of the slowest rank.
struct Ends {
  double first_gather = 0;
  double last_reduce = 0;
  double update = 0;
  double total() const { return first_gather + last_reduce + update; }
};

/// One stage: an optimizer step of the engine beside its limit, the longer of compute and
/// communication, each alone, plus first gather, last reduce and update. Every rank has one core;
/// rows are milliseconds of the slowest rank.
class StageBench {
 public:
  StageBench(Communicator& communicator, const OverlapCases& cases, int stage)
      : communicator_(communicator),
        cases_(cases),
        model_(communicator, cases.units, cases.elements, stage, cases.prefetch) {}

  void measure(Report& report) {
    const Ends ends = measure_ends();
    for (const double share : cases_.shares) measure_share(ends, share, report);
  }

 private:
  double slowest_median(std::vector<double> seconds) {
    return model_.slowest(summary(std::move(seconds)).median);
  }

  /// Mean seconds of optimizer steps in a row; the one before them is not counted, so that what a
  /// step leaves under way for the next one is part of every sample. Of the slowest rank.
  double steps(const SyntheticModel::Compute& compute) {
    constexpr int kSteps = 2;
    model_.settle();
    model_.step(compute);
    const double seconds = seconds_of([&] {
      for (int i = 0; i < kSteps; ++i) model_.step(compute);
    });
    return model_.slowest(seconds / kSteps);
  }

  double repeated(const std::function<void()>& body) {
    std::vector<double> seconds;
    for (int i = 0; i <= 2 * cases_.rounds; ++i) {
      model_.settle();
      seconds.push_back(seconds_of(body));
    }
    seconds.erase(seconds.begin());
    return slowest_median(std::move(seconds));
  }

  Ends measure_ends() {
    return {.first_gather = repeated([&] { model_.first_gather_alone(); }),
            .last_reduce = repeated([&] { model_.last_reduce_alone(); }),
            .update = repeated([&] { model_.update_alone(); })};
  }

  /// Compute, communication and whole steps take turns; each round gives a ratio, so that what
  /// disturbs a round disturbs both sides of it.
  void measure_share(const Ends& ends, double share, Report& report) {
    const double target = steps(SyntheticModel::no_compute()) - ends.update;
    const SyntheticModel::Compute compute = model_.compute_of(target / share);
    std::vector<double> computing, communicating, together, ratios;
    std::vector<double> exposed(static_cast<std::size_t>(cases_.units), 0.0);
    for (int round = 0; round < cases_.rounds; ++round) {
      communicating.push_back(steps(SyntheticModel::no_compute()) - ends.update);
      model_.settle();
      computing.push_back(model_.slowest(seconds_of([&] { model_.compute_alone(compute); })));
      together.push_back(steps(compute));
      model_.add_exposed(exposed);
      ratios.push_back(together.back() /
                       (std::max(computing.back(), communicating.back()) + ends.total()));
    }
    for (double& seconds : exposed) seconds = model_.slowest(seconds / cases_.rounds);
    const Timing step = summary(together);
    const std::string name =
        fmt::format("stage {}, communication {} of compute", model_.stage(), share);
    add(report, name, step, step.median / summary(ratios).median);
    const auto worst = std::max_element(exposed.begin(), exposed.end());
    add(report, fmt::format("  exposed, worst unit: {}", model_.unit_name(worst - exposed.begin())),
        {*worst, *worst}, 0);
    report.note(fmt::format(
        "{}: ms of compute {:.1f}, communication {:.1f}, first gather {:.1f}, last reduce {:.1f}, "
        "update {:.1f}; exposed per unit: {}",
        name, 1e3 * summary(computing).median, 1e3 * summary(communicating).median,
        1e3 * ends.first_gather, 1e3 * ends.last_reduce, 1e3 * ends.update, per_unit(exposed)));
  }

  static std::string per_unit(const std::vector<double>& exposed) {
    std::vector<std::string> parts;
    for (const double seconds : exposed) parts.push_back(fmt::format("{:.1f}", 1e3 * seconds));
    return fmt::format("{}", fmt::join(parts, " "));
  }

  void add(Report& report, std::string name, Timing seconds, double limit) const {
    report.add({.section = "overlap",
                .name = std::move(name),
                .ranks = communicator_.size(),
                .bytes = cases_.elements * cases_.units * 2,
                .dtype = "bf16",
                .value = 1e3 * seconds.median,
                .best = 1e3 * seconds.best,
                .unit = "ms",
                .limit = 1e3 * limit});
  }

  Communicator& communicator_;
  const OverlapCases& cases_;
  SyntheticModel model_;
};

/// Steps beside their limit, over whatever link joins the ranks.
class Overlap final : public Section {
 public:
  std::string name() const override { return "overlap"; }
  std::string summary() const override {
    return "steps against the longer of compute and communication; see bench/two_hosts.sh";
  }
  void add_options(CLI::App& command) override {
    command.add_option("--stages", cases_.stages, "stages to measure")->check(CLI::Range(0, 3));
    command.add_option("--shares", cases_.shares, "communication over compute")
        ->check(CLI::Range(0.01, 100.0));
    command.add_option("--units", cases_.units, "units of the model")->check(CLI::Range(1, 1000));
    command.add_option("--elements", cases_.elements, "parameters of a unit")
        ->check(CLI::Range(std::int64_t{1}, std::int64_t{1} << 31));
    command
        .add_option("--prefetch", cases_.prefetch,
                    "stage3_prefetch_bucket_size; by default as the engine chooses")
        ->check(CLI::Range(std::int64_t{0}, std::int64_t{1} << 31));
    command.add_option("--rounds", cases_.rounds, "rounds of each case")
        ->check(CLI::Range(1, 1000));
  }
  void run(Context& context) override {
    context.alone([&] { measure_bookkeeping(context.threads(), context.report()); });
    if (context.size() == 1) {
      context.report().note(
          "overlap: needs ranks with a core each: bench/two_hosts.sh 1gbit zero_bench overlap");
      return;
    }
    for (const int stage : cases_.stages) {
      StageBench(context.communicator(), cases_, stage).measure(context.report());
    }
  }

 private:
  OverlapCases cases_;
};

}  // namespace

std::unique_ptr<Section> overlap_section() { return std::make_unique<Overlap>(); }

}  // namespace zero::bench
