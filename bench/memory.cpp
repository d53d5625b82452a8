// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <fstream>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/file_text.h"
#include "base/whole_number.h"
#include "bench/section.h"
#include "bench/stepper.h"
#include "bench/timing.h"
#include "collectives/backends.h"
#include "launch/process/quantity.h"
#include "launch/train/memory_fit.h"

namespace zero::bench {
namespace {

struct Mode {
  std::string name;
  std::vector<std::string> overrides{};
};

/// A key of /proc/self/status in bytes; nothing if the system does not have it.
std::optional<double> status_bytes(std::string_view key) {
  const auto kilobytes = number_behind(file_text("/proc/self/status"), key);
  return kilobytes ? std::optional(1024 * static_cast<double>(*kilobytes)) : std::nullopt;
}

/// Begins a new peak of resident memory; whether the system can.
bool forget_peak() {
  std::ofstream file("/proc/self/clear_refs");
  file << "5" << std::flush;
  return file.good();
}

/// Training steps with and without recompute: time beside that of the repeated arithmetic, and
/// resident memory beside the plan's.
class Memory final : public Section {
 public:
  std::string name() const override { return "memory"; }
  std::string summary() const override {
    return "training steps of one process that compute activations again: time, and peak of "
           "resident memory, beside what was planned";
  }
  void add_options(CLI::App& command) override {
    command.add_option("--memory-model", model_, "a model by name, or its section as JSON")
        ->capture_default_str();
    command.add_option("--memory-rows", batch_, "sequences of a step")->capture_default_str();
    command.add_option("--memory-sequence", sequence_, "tokens of a sequence")
        ->capture_default_str();
    command.add_option("--memory-dtype", dtype_, "bf16 or fp32")
        ->check(CLI::IsMember({"bf16", "fp32"}))
        ->capture_default_str();
    command.add_option("--memory-rounds", rounds_, "turns of each mode and of none")
        ->capture_default_str();
  }

  void run(Context& context) override {
    context.alone([&] { measure(context); });
  }

 private:
  TrainConfig config_of(const Context& context, const std::vector<std::string>& overrides) const {
    StepSetup setup{.batch = batch_,
                    .sequence = sequence_,
                    .dtype = dtype_from_name(dtype_),
                    .threads = context.threads(),
                    .overrides = overrides};
    setup.model = model_.starts_with('{') ? nlohmann::json::parse(model_) : nlohmann::json(model_);
    return make_config(setup);
  }

  /// A run that has made its first step.
  struct Warm {
    Warm(const TrainConfig& from, Communicator& communicator)
        : config(from), fresh(forget_peak()), before(status_bytes("VmRSS:").value_or(0)) {
      device = cpu::open({.threads = config.run.threads});
      stepper = std::make_unique<Stepper>(config, communicator, *device);
      stepper->step();
      if (const auto most = status_bytes("VmHWM:"); fresh && most) peak = *most - before;
    }
    double rate() { return static_cast<double>(config.tokens_per_step()) / stepper->seconds(1); }

    TrainConfig config;
    bool fresh;
    double before;
    std::optional<double> peak{};  ///< of resident memory, beyond what was there
    std::unique_ptr<Device> device{};
    std::unique_ptr<Stepper> stepper{};
  };

  void measure(Context& context) const {
    const std::string key = "activation_checkpointing.";
    const std::vector<Mode> modes{{"full", {key + "recompute=full"}},
                                  {"interval 4", {key + "recompute=full", key + "interval=4"}},
                                  {"selective", {key + "recompute=selective"}},
                                  {"hidden", {key + "recompute=selective", key + "tensors=hidden"}},
                                  {"4 groups", {key + "number_checkpoints=4"}},
                                  {"outputs kept", {key + "keep_outputs=true"}}};
    local::run(1, [&](Communicator& communicator) {
      Warm none(config_of(context, {}), communicator);
      for (const Mode& mode : modes) {
        Warm again(config_of(context, mode.overrides), communicator);
        Turns turns{.values = {}, .limits = {none.rate()}};
        for (int round = 0; round < rounds_; ++round) {
          turns.values.push_back(again.rate());
          turns.limits.push_back(none.rate());
        }
        add(context.report(), mode.name, none, again, turns);
      }
    });
  }

  void add(Report& report, const std::string& mode, const Warm& none, const Warm& again,
           const Turns& turns) const {
    const double repeated =
        recomputed_flop(again.config.model, sequence_, again.config.recompute.plan) /
        flop_per_token(again.config);
    const std::int64_t planned = planned_rank_bytes(again.config, BackendKind::local);
    const double rate = median_rate(turns.values);
    report.add({.section = name(),
                .name = fmt::format("{}, +{:.1f} % FLOP", mode, 100 * repeated),
                .bytes = planned,
                .dtype = dtype_,
                .value = rate,
                .best = *std::max_element(turns.values.begin(), turns.values.end()),
                .unit = "tokens/s",
                .limit = rate / (turns.share() * (1 + repeated))});
    const auto all = static_cast<double>(planned_rank_bytes(none.config, BackendKind::local));
    const auto less = all - static_cast<double>(planned);
    std::string text =
        fmt::format("{}: a step takes {:.3f} times as long; planned {}, {} less", mode,
                    1 / turns.share(), bytes_text(static_cast<double>(planned)), bytes_text(less));
    if (none.peak && again.peak) {
      text += fmt::format("; resident {}, {} less", bytes_text(*again.peak),
                          bytes_text(*none.peak - *again.peak));
    }
    report.note(text);
  }

  std::string model_ = "gpt2-124m";
  std::int64_t batch_ = 4;
  std::int64_t sequence_ = 512;
  std::string dtype_ = "fp32";
  int rounds_ = 5;
};

}  // namespace

std::unique_ptr<Section> memory_section() { return std::make_unique<Memory>(); }

}  // namespace zero::bench
