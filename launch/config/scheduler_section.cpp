// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0

// The section scheduler.
#include <fmt/format.h>

#include <algorithm>

#include "base/error.h"
#include "launch/config/answers.h"
#include "launch/config/refusals.h"
#include "launch/config/train_config.h"

namespace zero {
namespace {

/// A scheduler parameter; if null, `fallback`, which is recorded in `values`.
std::int64_t steps_of(Configuration& values, const char* key, std::int64_t fallback,
                      const char* why) {
  const std::string path = "scheduler.params." + std::string(key);
  if (values.is_null(path)) values.resolve(path, fallback, why);
  return values.integer(path);
}

LearningRates make_deepspeed_rates(Configuration& values, const std::string& type, double lr) {
  DeepSpeedSchedule schedule;
  const auto param = [](const char* key) { return "scheduler.params." + std::string(key); };
  schedule.warmup = values.text(param("warmup_type")) == "linear"
                        ? DeepSpeedSchedule::Warmup::linear
                        : DeepSpeedSchedule::Warmup::log;
  schedule.warmup_steps = steps_of(values, "warmup_num_steps", 1000, "default of DeepSpeed");
  if (schedule.warmup_steps == 0) {
    throw Refusal(fmt::format("{}: scheduler.params.warmup_num_steps: found 0, expected a whole "
                              "number from 1 for {}",
                              values.source(), type),
                  {"scheduler.params.warmup_num_steps=1"});
  }
  if (type != "WarmupLR") {
    schedule.total_steps =
        steps_of(values, "total_num_steps", std::max<std::int64_t>(1, values.integer("run.steps")),
                 "run.steps");
  }
  if (type == "WarmupCosineLR") {
    schedule.kind = DeepSpeedSchedule::Kind::warmup_cosine;
    schedule.low = values.number(param("warmup_min_ratio")) * lr;
    schedule.high = lr;
    schedule.final_ratio = values.number(param("cos_min_ratio"));
    return LearningRates(schedule);
  }
  const bool decays = type == "WarmupDecayLR";
  schedule.kind = decays ? DeepSpeedSchedule::Kind::warmup_decay : DeepSpeedSchedule::Kind::warmup;
  if (values.is_null(param("warmup_max_lr"))) {
    // "auto" is the optimizer's rate to the frameworks that fill it in.
    const bool is_auto = values.at(param("warmup_max_lr")).source.ends_with("(auto)");
    const bool fixed = decays && !is_auto;
    values.resolve(param("warmup_max_lr"), fixed ? 0.001 : lr,
                   fixed ? "default of DeepSpeed" : "optimizer.params.lr");
  }
  schedule.low = values.number(param("warmup_min_lr"));
  schedule.high = values.number(param("warmup_max_lr"));
  return LearningRates(schedule);
}

/// Makes the parts of a schedule that does not fit its total fit: the whole total for the warm-up,
/// what is left of it for the last part.
std::vector<std::string> answer_to_schedule(const Configuration& values,
                                            const LearningRateSchedule& schedule) {
  const std::string prefix = "scheduler.params.";
  const bool wsd = schedule.kind == LearningRateSchedule::Kind::wsd;
  // wsd's last part has a step at least.
  const std::int64_t most = schedule.total_steps - (wsd ? 1 : 0);
  const std::int64_t warmup = std::min(schedule.warmup_steps, most);
  std::vector<std::string> sets;
  const auto change = [&](const std::string& key, std::int64_t from, std::int64_t to) {
    if (from == to) return true;
    const auto set = answer_to_file(values, {{prefix + key, to}});
    sets.insert(sets.end(), set.begin(), set.end());
    return !set.empty();
  };
  bool all = change("warmup_num_steps", schedule.warmup_steps, warmup);
  if (wsd) {
    const std::int64_t decay = std::min(schedule.decay_steps, schedule.total_steps - warmup);
    all = change("decay_num_steps", schedule.decay_steps, decay) && all;
  }
  return all ? sets : std::vector<std::string>{};
}

}  // namespace

std::string warmup_warning(const Configuration& values) {
  constexpr const char* kKey = "scheduler.params.warmup_num_steps";
  const std::int64_t steps = values.integer("run.steps");
  const std::int64_t warmup = values.integer(kKey);
  if (steps == 0 || warmup <= steps) return "";
  return values.as_written(fmt::format(
      "{} is {} ({}), run.steps is {}: the run ends while the learning rate still rises; lower the "
      "first or raise the second",
      kKey, warmup, values.at(kKey).source, steps));
}

LearningRates make_rates(Configuration& values) {
  const std::string type = values.text("scheduler.type");
  const double lr = values.number("optimizer.params.lr");
  if (type.starts_with("Warmup")) return make_deepspeed_rates(values, type, lr);
  LearningRateSchedule schedule;
  schedule.peak = lr;
  schedule.warmup_steps = steps_of(values, "warmup_num_steps", 0, "default");
  if (type != "constant") {
    schedule.kind = type == "linear"   ? LearningRateSchedule::Kind::linear
                    : type == "cosine" ? LearningRateSchedule::Kind::cosine
                                       : LearningRateSchedule::Kind::wsd;
    schedule.total_steps =
        steps_of(values, "total_num_steps", std::max<std::int64_t>(1, values.integer("run.steps")),
                 "run.steps");
    schedule.min_ratio = values.number("scheduler.params.min_ratio");
  }
  if (type == "wsd") {
    schedule.decay_steps =
        steps_of(values, "decay_num_steps", std::max<std::int64_t>(1, schedule.total_steps / 5),
                 "a fifth of total_num_steps");
  }
  try {
    if (values.integer("run.steps") > 0) schedule.validate();
  } catch (const Error& error) {
    throw Refusal(fmt::format("{}: scheduler: {}", values.source(), error.what()),
                  answer_to_schedule(values, schedule));
  }
  return LearningRates(schedule);
}

std::vector<Option> scheduler_options() {
  using enum ValueType;
  const std::vector<std::string> deepspeed{"WarmupLR", "WarmupDecayLR", "WarmupCosineLR"};
  const std::vector<std::string> ours{"linear", "cosine", "wsd"};
  return {
      honour("scheduler.type", text, "\"constant\"",
             "DeepSpeed's WarmupLR, WarmupDecayLR, WarmupCosineLR with its formulas, or our own")
          .one_of({"constant", "linear", "cosine", "wsd", "WarmupLR", "WarmupDecayLR",
                   "WarmupCosineLR"}),
      honour("scheduler.params.warmup_num_steps", integer, "null",
             "steps of warm-up; null: 1000 for DeepSpeed's types, 0 for ours")
          .from(0),
      honour("scheduler.params.total_num_steps", integer, "null",
             "step at which the decay ends; null: run.steps")
          .from(1)
          .of({"WarmupDecayLR", "WarmupCosineLR", "linear", "cosine", "wsd"}),
      honour("scheduler.params.warmup_type", text, "\"log\"", "shape of DeepSpeed's warm-up")
          .one_of({"log", "linear"})
          .of(deepspeed),
      honour("scheduler.params.warmup_min_lr", number, "0.0", "learning rate before warm-up")
          .from(0, 1e6)
          .of({"WarmupLR", "WarmupDecayLR"}),
      honour("scheduler.params.warmup_max_lr", number, "null",
             "learning rate after warm-up; null: optimizer.params.lr for WarmupLR, 0.001 for "
             "WarmupDecayLR; \"auto\": optimizer.params.lr")
          .from(0, 1e6)
          .of({"WarmupLR", "WarmupDecayLR"}),
      honour("scheduler.params.warmup_min_ratio", number, "0.0",
             "learning rate before warm-up over lr")
          .from(0, 1)
          .of({"WarmupCosineLR"}),
      honour("scheduler.params.cos_min_ratio", number, "0.0001", "final learning rate over lr")
          .from(0, 1)
          .of({"WarmupCosineLR"}),
      only("scheduler.params.last_batch_iteration", integer, "-1",
           "a run goes on from its checkpoint's step"),
      honour("scheduler.params.min_ratio", number, "0.0", "final learning rate over lr")
          .from(0, 1)
          .of(ours),
      honour("scheduler.params.decay_num_steps", integer, "null",
             "steps of the last, falling part; null: a fifth of total_num_steps")
          .from(1)
          .of({"wsd"}),
  };
}

}  // namespace zero
