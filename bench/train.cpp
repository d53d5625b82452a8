// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/cgroup.h"
#include "base/error.h"
#include "bench/measured_keys.h"
#include "bench/product_rate.h"
#include "bench/section.h"
#include "bench/stepper.h"
#include "bench/timing.h"
#include "collectives/backends.h"
#include "launch/telemetry/run_report.h"
#include "launch/train/plan.h"

namespace zero::bench {
namespace {

constexpr int kProductsPerTurn = 3;
constexpr int kStepsPerTurn = 2;  // of sharded runs: the gathers for the second are under the first
constexpr double kHeadroom = 1.15;

/// Empty where ranks are the shard axis alone.
std::string mesh_name(const TrainConfig& config) {
  const MeshShape& mesh = config.mesh;
  if (mesh.replicate == 1 && mesh.tensor == 1) return "";
  return ", mesh " + mesh.text();
}

/// Whole training steps: one process against the product rate; under mpirun many ranks against one
/// process with all cores and the same global batch, in turns.
class Train final : public Section {
 public:
  std::string name() const override { return "train"; }
  std::string summary() const override {
    return "training steps: one process against the product rate; under mpirun, stages 0 to 3 "
           "against one process";
  }
  void add_options(CLI::App& command) override {
    command.add_option("--model", model_, "a model by name")->capture_default_str();
    command.add_option("--batch", batch_, "sequences of a step (4; 8 with several ranks)")
        ->check(CLI::Range(1, 1 << 20));
    command
        .add_option("--sequence", sequence_, "tokens of a sequence (512; 256 with several ranks)")
        ->check(CLI::Range(1, 1 << 20));
    command.add_option("--rounds", rounds_, "turns of what is compared (5; 3 with several ranks)")
        ->check(CLI::Range(1, 1000));
    command
        .add_option("--stages", stages_,
                    "which, with one thread a rank, against one process (all with several ranks)")
        ->delimiter(',')
        ->check(CLI::Range(0, 3));
    command
        .add_option("--tensor", tensors_,
                    "ranks of the mesh's tensor axis, which (1; with several ranks)")
        ->delimiter(',')
        ->check(CLI::Range(1, 1 << 20));
    command.add_option("--dtypes", dtypes_, "which (bf16,fp32; bf16 with several ranks)")
        ->delimiter(',')
        ->check(CLI::IsMember({"bf16", "fp32"}));
    command.add_option("--set", overrides_, "key.path=value of zero_train's configuration")
        ->allow_extra_args(false);
  }

  void run(Context& context) override {
    check_overrides(overrides_);
    const bool alone = context.size() == 1 && stages_.empty();
    for (const int tensor : tensors_) {
      ZERO_CHECK(context.size() % tensor == 0,
                 "--tensor {}: the job has {} rank(s), expected a multiple of {}; start it with "
                 "mpirun -np N, or leave --tensor out",
                 tensor, context.size(), tensor);
    }
    if (dtypes_.empty())
      dtypes_ = alone ? std::vector<std::string>{"bf16", "fp32"} : std::vector<std::string>{"bf16"};
    for (const std::string& dtype : dtypes_) {
      if (alone) {
        measure_alone(context, dtype_from_name(dtype));
      } else {
        measure_ranks(context, dtype_from_name(dtype));
      }
    }
  }

 private:
  StepSetup setup(DType dtype, int stage, int threads, int world, int tensor = 1) const {
    const bool many = sharded_;
    return {.model = model_,
            .batch = batch_ > 0 ? batch_ : (many ? 8 : 4),
            .sequence = sequence_ > 0 ? sequence_ : (many ? 256 : 512),
            .dtype = dtype,
            .stage = stage,
            .threads = threads,
            .world = world,
            .tensor = tensor,
            .overrides = overrides_};
  }
  /// For the name of a row: what is not as the flags say.
  std::string changes() const {
    return overrides_.empty() ? "" : fmt::format(", {}", fmt::join(overrides_, ", "));
  }
  int rounds() const { return rounds_ > 0 ? rounds_ : (sharded_ ? 3 : 5); }

  void measure_alone(Context& context, DType dtype) {
    const TrainConfig config = make_config(setup(dtype, 0, context.threads(), 1));
    const auto device = cpu::open({.threads = context.threads()});
    Stepper stepper(config, context.communicator(), *device);
    ProductRate products(dtype, context.threads());
    stepper.step();
    const auto tokens = static_cast<double>(config.tokens_per_step());
    const double per_token = flop_per_token(config);
    Turns turns{{}, {products.sample(kProductsPerTurn) / per_token}};
    for (int round = 0; round < rounds(); ++round) {
      turns.values.push_back(tokens / stepper.seconds(1));
      turns.limits.push_back(products.sample(kProductsPerTurn) / per_token);
    }
    const std::string what =
        fmt::format("{} {} x {}, {} thread(s){}{}", model_, config.batch.train,
                    config.data.sequence_length, context.threads(), changes(), products.remark());
    Row row{.section = name(),
            .name = what,
            .dtype = std::string(name_of(config.engine.compute)),
            .value = median_rate(turns.values),
            .best = std::ranges::max(turns.values),
            .unit = "tokens/s",
            .limit = products.rate() / per_token};
    context.report().add(row);
    row.name = what + ", model";
    row.unit = "GFLOP/s";
    for (double* value : {&row.value, &row.best, &row.limit}) *value *= per_token * 1e-9;
    context.report().add(row);
    row.name = what;
    add_turns(context, row, turns);
  }

  /// What noise of the machine touches least: shares of neighbours, and of the best.
  static void add_turns(Context& context, Row row, const Turns& turns) {
    row.name += ", turn by turn";
    row.unit = "of the limit";
    row.value = turns.share();
    row.best = turns.best_share();
    row.limit = 1;
    context.report().add(row);
  }

  void measure_ranks(Context& context, DType dtype) {
    sharded_ = true;
    Communicator& all = context.communicator();
    const auto one = all.split(all.rank() == 0 ? 0 : -1, 0);
    const TrainConfig config = make_config(setup(dtype, 0, context.threads(), 1));
    const auto device = cpu::open({.threads = context.threads()});
    std::optional<Stepper> single;
    context.alone([&] {
      single.emplace(config, *one, *device);
      single->step();
    });
    const std::vector<int> stages = stages_.empty() ? std::vector<int>{0, 1, 2, 3} : stages_;
    for (const int stage : stages) {
      for (const int tensor : tensors_) {
        measure_stage(context, make_config(setup(dtype, stage, 1, all.size(), tensor)), single);
      }
    }
  }

  /// Whether all ranks' memory of `config` is there; all ranks decide alike.
  bool fits(Context& context, const TrainConfig& config) {
    double enough = 1;
    const MemoryUse planned =
        plan_memory(config, 0, config.world, context.communicator().backend());
    const double needed =
        static_cast<double>(config.world) * kHeadroom * static_cast<double>(sum_of(planned.ledger));
    const std::optional<std::int64_t> there = available_memory();
    if (there && static_cast<double>(*there) < needed &&
        context.communicator().local_size() == context.size()) {
      enough = 0;
    }
    const auto device = cpu::open();
    context.communicator().broadcast(View::of(std::span(&enough, 1)), 0, device->communication(),
                                     {.purpose = "memory for a stage"});
    device->communication().synchronize();
    if (enough == 0 && context.rank() == 0) {
      context.report().note(fmt::format(
          "train: stage {} on {} ranks is left out: it needs {:.1f} GiB, {:.1f} are available",
          config.engine.stage, config.world, needed / (1 << 30),
          static_cast<double>(*there) / (1 << 30)));
    }
    return enough > 0;
  }

  void measure_stage(Context& context, const TrainConfig& config, std::optional<Stepper>& single) {
    if (!fits(context, config)) return;
    const auto device = cpu::open({.threads = config.run.threads});
    Stepper team(config, context.communicator(), *device);
    team.seconds(1);
    const auto tokens = static_cast<double>(config.tokens_per_step());
    const auto turn = [&](Stepper& stepper) {
      return tokens * kStepsPerTurn / stepper.seconds(kStepsPerTurn);
    };
    Turns turns;
    const auto apart = [&] { context.alone([&] { turns.limits.push_back(turn(*single)); }); };
    apart();
    for (int round = 0; round < rounds(); ++round) {
      turns.values.push_back(turn(team));
      apart();
    }
    if (context.rank() != 0) return;
    const Row row{.section = name(),
                  .name = fmt::format("{} stage {}{}, {} x {}{}", model_, config.engine.stage,
                                      mesh_name(config), config.batch.train,
                                      config.data.sequence_length, changes()),
                  .ranks = config.world,
                  .bytes = 0,
                  .dtype = std::string(name_of(config.engine.compute)),
                  .value = median_rate(turns.values),
                  .best = std::ranges::max(turns.values),
                  .unit = "tokens/s",
                  .limit = median_rate(turns.limits)};
    context.report().add(row);
    add_turns(context, row, turns);
  }

  std::string model_ = "gpt2-124m";
  std::int64_t batch_ = 0;  // 0: by the number of ranks
  std::int64_t sequence_ = 0;
  int rounds_ = 0;
  std::vector<int> stages_{};  // empty: all with several ranks, the product rate with one
  std::vector<int> tensors_{1};
  std::vector<std::string> dtypes_{};
  std::vector<std::string> overrides_{};
  bool sharded_ = false;
};

}  // namespace

std::unique_ptr<Section> train_section() { return std::make_unique<Train>(); }

}  // namespace zero::bench
