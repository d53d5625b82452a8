// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "tests/model/training_harness.h"

namespace zero::testing {

/// What two steps of training end in, whatever carries them out.
struct Outcome {
  std::uint64_t state = 0;
  double norm = 0;
  std::vector<double> losses;  // of micro-batches in their global order
  friend bool operator==(const Outcome&, const Outcome&) = default;
};

using Open = std::function<std::unique_ptr<Device>()>;

inline Open on_threads(int threads) {
  return [threads] { return cpu::open({.threads = threads}); };
}

/// Trains `config` on `ranks` ranks of one device each; a step has `micro_batches` over all ranks.
inline Outcome outcome_of(const DecoderShape& config, std::int64_t micro_batches, int ranks,
                          const EngineOptions& options, const Open& open_device,
                          const RecomputePlan& recompute = {}) {
  constexpr std::int64_t kSteps = 2;
  Outcome outcome;
  outcome.losses.resize(static_cast<std::size_t>(kSteps * micro_batches));
  local::run(ranks, [&](Communicator& communicator) {
    const auto device = open_device();
    const std::int64_t accumulation = micro_batches / ranks;
    Training training(communicator, *device, options, config, {2, 7},
                      static_cast<int>(accumulation), {}, recompute);
    StepReport report;
    for (std::int64_t step = 0; step < kSteps; ++step) {
      for (std::int64_t j = 0; j < accumulation; ++j) {
        const std::int64_t index = step * micro_batches + j * ranks + communicator.rank();
        const Batch batch =
            Batch::random(14, training.model.vocabulary(), static_cast<std::uint32_t>(index));
        outcome.losses[static_cast<std::size_t>(index)] =
            training.train(batch, 1.0F / static_cast<float>(14 * micro_batches));
      }
      report = training.engine.step({.learning_rate = 1e-2});
    }
    const std::uint64_t hash = training.engine.states().hash();
    if (communicator.rank() == 0) {
      outcome.state = hash;
      outcome.norm = report.gradient_norm;
    }
  });
  return outcome;
}

}  // namespace zero::testing
