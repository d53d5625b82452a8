// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <functional>
#include <optional>

#include "launch/data/batches.h"
#include "launch/train/training_state.h"

namespace zero {

/// The mean loss in nats per token over the validation sequences: the same bits for every stage and
/// world with the same micro-batch. Collective; between optimizer steps. Each rank calls
/// `goes_on(batch, batches)` after each batch: the loss is nothing once it is false on any rank.
std::optional<double> validation_loss(
    TrainingState& training_state, const Batches& batches,
    const std::function<bool(std::int64_t, std::int64_t)>& goes_on);

}  // namespace zero
