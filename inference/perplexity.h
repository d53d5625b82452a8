// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <span>

#include "inference/inference_model.h"

namespace zero {

/// How well a model foresees a text.
struct TextScore {
  double nats = 0;          ///< the sum of the tokens' cross-entropies
  std::int64_t tokens = 0;  ///< foreseen: all but those that begin each window

  double perplexity() const;
};

/// Reads the text in windows of the model's request_tokens, each as a sequence of its own, whose
/// first tokens give way to `begin`, as <bos>: models that were trained with it foresee nothing
/// without it. Throws zero::Error if no token is foreseen, or if a token's loss is not finite.
TextScore score_text(InferenceModel& model, std::span<const std::uint32_t> text,
                     std::span<const std::uint32_t> begin = {});

}  // namespace zero
