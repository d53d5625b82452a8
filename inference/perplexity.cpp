// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#include "inference/perplexity.h"

#include <algorithm>
#include <cmath>
#include <string>
#include <vector>

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

TextScore score_text(InferenceModel& model, std::span<const std::uint32_t> text,
                     std::span<const std::uint32_t> begin) {
  const std::size_t given = std::max<std::size_t>(begin.size(), 1);  // tokens before the foreseen
  ZERO_CHECK(text.size() > given, "score: a text of {} tokens; expected {} at least", text.size(),
             given == 1 ? "two" : std::to_string(given + 1));
  const auto rows =
      static_cast<std::size_t>(std::min(model.options().rows, model.options().logit_rows));
  TextScore score;
  while (text.size() > given) {
    const auto part =
        text.first(std::min(text.size(), static_cast<std::size_t>(model.options().request_tokens)));
    std::vector<std::uint32_t> window(part.begin(), part.end());
    std::ranges::copy(begin, window.begin());
    const std::int64_t slot = model.cache().open();
    for (std::size_t first = 0; first + 1 < window.size(); first += rows) {
      const std::size_t count = std::min(rows, window.size() - 1 - first);
      const InferenceModel::Part pass{slot, std::span(window).subspan(first, count),
                                      static_cast<std::int64_t>(count)};
      model.forward(std::span(&pass, 1));
      for (std::size_t i = 0; i < count; ++i) {
        if (first + i + 1 < given) continue;
        score.nats +=
            cross_entropy(model.logits(static_cast<std::int64_t>(i)), window[first + i + 1]);
        ++score.tokens;
      }
    }
    model.cache().close(slot);
    text = text.subspan(window.size());
  }
  return score;
}

}  // namespace zero
