// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#include "inference/perplexity.h"

#include <algorithm>
#include <cmath>

#include "base/error.h"
#include "inference/sampler.h"

namespace zero {
namespace {

/// -log(softmax(logits)[target]), in fp64.
double cross_entropy(std::span<const float> logits, std::uint32_t target) {
  const double nats = log_sum(logits) - static_cast<double>(logits[target]);
  ZERO_CHECK(std::isfinite(nats), "score: the logits of a token give a loss of {}", nats);
  return nats;
}

}  // namespace

double TextScore::perplexity() const { return std::exp(nats / static_cast<double>(tokens)); }

TextScore score_text(InferenceModel& model, std::span<const std::uint32_t> text) {
  ZERO_CHECK(text.size() >= 2, "score: a text of {} tokens; expected two at least", text.size());
  const auto rows =
      static_cast<std::size_t>(std::min(model.options().rows, model.options().logit_rows));
  TextScore score;
  while (text.size() >= 2) {
    const auto window =
        text.first(std::min(text.size(), static_cast<std::size_t>(model.options().request_tokens)));
    const std::int64_t slot = model.cache().open();
    for (std::size_t first = 0; first + 1 < window.size(); first += rows) {
      const std::size_t count = std::min(rows, window.size() - 1 - first);
      const InferenceModel::Part part{slot, window.subspan(first, count),
                                      static_cast<std::int64_t>(count)};
      model.forward(std::span(&part, 1));
      for (std::size_t i = 0; i < count; ++i) {
        score.nats +=
            cross_entropy(model.logits(static_cast<std::int64_t>(i)), window[first + i + 1]);
      }
      score.tokens += static_cast<std::int64_t>(count);
    }
    model.cache().close(slot);
    text = text.subspan(window.size());
  }
  return score;
}

}  // namespace zero
