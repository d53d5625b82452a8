// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "inference/sampler.h"

namespace zero {

/// Settings of Sampling, each chosen or left to the next source.
struct SamplingChoice {
  std::optional<double> temperature{};
  std::optional<std::int64_t> top_k{};
  std::optional<double> top_p{};
  std::optional<double> min_p{};
  std::optional<double> repetition_penalty{};

  /// Puts what was chosen in place of what `sampling` has.
  void apply_to(Sampling& sampling) const;
};

/// What a model's generation_config.json says of answers.
struct ModelSampling {
  std::string file{};  ///< its path, for messages
  SamplingChoice choice{};
  std::optional<std::int64_t> max_tokens{};  ///< max_new_tokens
  /// Settings that are not known here and would choose other tokens, as "typical_p 0.9".
  std::vector<std::string> unknown{};

  /// Lines for people: what is used of the file, and what is not.
  std::vector<std::string> lines() const;
};

/// Reads the file in `folder`, which may be missing, as transformers does: without "do_sample":
/// true the temperature is 0; with it, it is 1 and top_k 50 where the file has neither. Throws
/// zero::Error naming file, field, found and expected.
ModelSampling read_model_sampling(const std::string& folder);

}  // namespace zero
