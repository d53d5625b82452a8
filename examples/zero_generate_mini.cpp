// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
// A model of a Hugging Face folder (or of zero_train) continues prompts, several at once: tokens of
// all of them are computed in one pass of the model. The program that has every setting is
// zero_generate.
//   zero_generate_mini FOLDER "a prompt" ["another prompt" ...]
#include <fmt/core.h>

#include <cstdint>
#include <exception>
#include <memory>
#include <string>
#include <vector>

#include "zero/inference/generator.h"
#include "zero/inference/inference_model.h"
#include "zero/text/tokenizer.h"
#include "zero/text/tokenizer_config.h"

/// The texts that follow `prompts`.
std::vector<std::string> answers(const std::string& folder,
                                 const std::vector<std::string>& prompts) {
  const auto device = zero::cpu::open();
  const auto tokenizer = zero::make_tokenizer(folder);
  zero::InferenceOptions options;
  options.dtype = zero::DType::bf16;
  options.requests = static_cast<std::int64_t>(prompts.size());  // answered at once, at most
  options.request_tokens = 256;                                  // of a prompt and its answer
  // Weights, cache and activations are allocated here; nothing is later.
  const auto model = zero::open_inference_model(*device, folder, options);
  zero::Generator generator(*model);

  std::vector<std::vector<std::uint32_t>> ids(prompts.size());
  std::vector<std::string> errors;
  for (std::size_t i = 0; i < prompts.size(); ++i) {
    zero::GenerationRequest request{.prompt =
                                        tokenizer->encode(prompts[i], {.begin_of_text = true})};
    request.max_tokens = 64;
    request.sampling = {.temperature = 0.8, .top_k = 40, .seed = i};
    request.end_tokens = zero::read_end_tokens(folder);
    const auto on_token = [&to = ids[i]](const zero::GeneratedToken& token) {
      to.push_back(token.id);
      return zero::Flow::more;
    };
    const auto on_end = [&errors](const zero::GenerationEnd& end) {
      if (end.reason == zero::FinishReason::failed) errors.push_back(end.error);
    };
    generator.submit(std::move(request), {on_token, on_end});
  }
  while (generator.step()) {  // one token of each request; callbacks run inside
  }
  if (!errors.empty()) throw zero::Error(errors.front());

  std::vector<std::string> texts;
  for (const auto& tokens : ids) texts.push_back(tokenizer->decode(tokens));
  return texts;
}

int main(int argc, char** argv) try {
  if (argc < 3 || argv[1][0] == '-') {
    fmt::print(stderr, "usage: zero_generate_mini FOLDER PROMPT...\n");
    return 1;
  }
  const std::vector<std::string> prompts(argv + 2, argv + argc);
  const std::vector<std::string> texts = answers(argv[1], prompts);
  for (std::size_t i = 0; i < prompts.size(); ++i) fmt::print("{}{}\n", prompts[i], texts[i]);
} catch (const std::exception& error) {
  fmt::print(stderr, "zero_generate_mini: {}\n", error.what());
  return 1;
}
