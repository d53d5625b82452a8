// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>

namespace zero {

/// The batch sizes that a configuration gives; a missing one is inferred.
struct BatchRequest {
  std::optional<std::int64_t> train{};         ///< train_batch_size
  std::optional<std::int64_t> micro{};         ///< train_micro_batch_size_per_gpu
  std::optional<std::int64_t> accumulation{};  ///< gradient_accumulation_steps
};

/// train = micro x accumulation x world.
struct Batch {
  std::int64_t train = 0;
  std::int64_t micro = 0;
  std::int64_t accumulation = 0;
  friend bool operator==(const Batch&, const Batch&) = default;
};

/// Infers as DeepSpeed does: any two give the third; train alone means one micro-batch; micro alone
/// means one micro-batch on every rank. Throws zero::Error, with the numbers, if they do not
/// fit.
Batch infer_batch(const BatchRequest& request, int world);

}  // namespace zero
