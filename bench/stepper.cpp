// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#include "bench/stepper.h"

#include "base/checked_math.h"
#include "bench/timing.h"
#include "launch/train/memory_fit.h"
#include "launch/train/tier_ladder.h"

namespace zero::bench {
TrainConfig make_config(const StepSetup& setup) {
  const nlohmann::json tree{
      {"model", setup.model},
      {"data", {{"train", "random tokens"}, {"sequence_length", setup.sequence}}},
      {"run", {{"device", "cpu"}, {"threads", setup.threads}}},
      {"train_batch_size", setup.batch},
      {"train_micro_batch_size_per_gpu",
       div_exact(setup.batch * setup.tensor, std::int64_t{setup.world})},
      {"zero_optimization", {{"stage", setup.stage}}},
      {"mesh", {{"tensor", setup.tensor}}},
      {"bf16", {{"enabled", setup.dtype == DType::bf16}}},
      {"optimizer", {{"type", "AdamW"}, {"params", {{"lr", 1e-4}, {"weight_decay", 0.1}}}}}};
  TrainConfig config =
      make_train_config(Configuration::from_json(tree, "zero_bench", setup.overrides), setup.world);
  const RankPlans plans = fit_memory(config, BackendKind::local);
  check_memory_limit(config, BackendKind::local, plans);
  return config;
}

double flop_per_token(const TrainConfig& config) {
  return config.model.flop_per_token(config.data.sequence_length);
}

Stepper::Stepper(const TrainConfig& config, Communicator& communicator, Device& device,
                 UnitListener* listener)
    : config_(config),
      device_(device),
      mesh_(communicator, config.mesh),
      training_state_(config, mesh_, device, listener),
      loss_scaling_(config),
      random_(static_cast<unsigned>(mesh_.data().rank()) + 1) {}

void Stepper::fill(View tokens) {
  for (std::int32_t& token : tokens.as<std::int32_t>()) {
    token = static_cast<std::int32_t>(random_() % static_cast<unsigned>(config_.model.vocabulary));
  }
}

StepReport Stepper::step() {
  const auto tokens = static_cast<double>(config_.tokens_per_step());
  const double scale = loss_scaling_.scale();
  std::vector<double> losses;
  for (std::int64_t j = 0; j < config_.batch.accumulation; ++j) {
    fill(training_state_.inputs());
    fill(training_state_.targets());
    training_state_.model().train(training_state_.inputs(), training_state_.targets(),
                                  static_cast<float>(scale / tokens), training_state_.loss());
    device_.compute().synchronize();
    losses.push_back(training_state_.loss().as<double>()[0] / tokens);
  }
  StepReport report =
      training_state_.engine().step({.learning_rate = 1e-4, .loss_scale = scale, .losses = losses});
  loss_scaling_.after_step(report);
  return report;
}

double Stepper::seconds(int count) {
  return seconds_of([&] {
    for (int i = 0; i < count; ++i) step();
    device_.communication().synchronize();
  });
}

}  // namespace zero::bench
