// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "inference/inference_memory.h"

namespace zero {

/// Memory of a rank of a model in a Hugging Face folder, from a plan that takes none.
struct PlannedModel {
  std::int64_t bytes = 0;
  std::int64_t host_bytes = 0;  ///< of these, in host memory; all, on a CPU
  BytesByClass reserve{};       ///< of a GPU
  std::string line{};  ///< for people, with the requests that fit: how many of the longest at once
};
/// Checks the files first. Throws zero::Error naming file, field or option.
PlannedModel plan_model(const std::string& folder, const InferenceOptions& options,
                        const PlannedRanks& ranks);
/// Likewise, of memory that has been planned.
PlannedModel planned_model(const DecoderShape& decoder, const InferenceMemory& memory,
                           const PlannedRanks& ranks);

/// Throws zero::Error if `bytes` of a rank are more than those available, unless these are unknown:
/// what is missing, and what would help the model of `folder`.
void check_memory(std::int64_t bytes, std::optional<std::int64_t> available,
                  const std::string& folder, const InferenceOptions& options,
                  const PlannedRanks& ranks);

}  // namespace zero
