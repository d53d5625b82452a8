// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>

#include "launch/data/batches.h"
#include "launch/train/training_state.h"

namespace zero {

/// The mean loss in nats per token over the validation sequences: the same bits for every stage and
/// world with the same micro-batch. Collective; between optimizer steps. Each rank calls
/// `goes_on(batch, batches)` after each batch: the loss is nothing once it is false on any rank.
std::optional<double> validation_loss(
    TrainingState& training_state, const Batches& batches,
    const std::function<bool(std::int64_t, std::int64_t)>& goes_on);

/// A prompt and the tokens that a model continues it with.
struct SampledText {
  std::vector<std::uint32_t> prompt;
  std::vector<std::uint32_t> tokens;
};

/// Samples `count` tokens that continue the start of the validation data (temperature 0.8, top 40);
/// the same on every rank and for every world. Collective; between optimizer steps.
SampledText sample_text(TrainingState& training_state, const Batches& batches, std::int64_t count,
                        std::uint64_t seed);

/// The sample for display: text if there is a `tokenizer`, token ids if `tokenizer` is empty.
std::string show(const SampledText& sample, const std::string& tokenizer);

}  // namespace zero
