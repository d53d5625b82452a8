// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#include "launch/generate/accepted_prompt.h"

#include <nlohmann/json.hpp>

namespace zero {

std::string encoded(const std::vector<AcceptedPrompt>& prompts) {
  auto all = nlohmann::json::array();
  for (const AcceptedPrompt& each : prompts) {
    const GenerationRequest& request = each.request;
    const Sampling& sampling = request.sampling;
    all.push_back({request.prompt, request.max_tokens, request.end_tokens, request.priority,
                   sampling.temperature, sampling.top_k, sampling.top_p, sampling.min_p,
                   sampling.repetition_penalty, sampling.seed, each.stop, each.where, each.number});
  }
  std::string bytes;
  nlohmann::json::to_cbor(all, bytes);
  return bytes;
}

std::vector<AcceptedPrompt> decoded_prompts(std::string_view bytes) {
  std::vector<AcceptedPrompt> prompts;
  for (const nlohmann::json& each : nlohmann::json::from_cbor(bytes)) {
    AcceptedPrompt prompt;
    std::size_t next = 0;
    const auto take = [&](auto& field) { each.at(next++).get_to(field); };
    take(prompt.request.prompt);
    take(prompt.request.max_tokens);
    take(prompt.request.end_tokens);
    take(prompt.request.priority);
    take(prompt.request.sampling.temperature);
    take(prompt.request.sampling.top_k);
    take(prompt.request.sampling.top_p);
    take(prompt.request.sampling.min_p);
    take(prompt.request.sampling.repetition_penalty);
    take(prompt.request.sampling.seed);
    take(prompt.stop);
    take(prompt.where);
    take(prompt.number);
    prompts.push_back(std::move(prompt));
  }
  return prompts;
}

}  // namespace zero
