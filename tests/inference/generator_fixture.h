// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <gtest/gtest.h>

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "inference/generator.h"
#include "inference/inference_model.h"
#include "tests/inference/saved_model.h"

namespace zero::testing {

using Tokens = std::vector<std::uint32_t>;

/// What a request was answered.
struct GeneratedAnswer {
  std::vector<std::uint32_t> ids;
  std::vector<float> log_probabilities;
  GenerationEnd end;

  bool same_tokens(const GeneratedAnswer& other) const {
    return ids == other.ids && log_probabilities == other.log_probabilities &&
           end.reason == other.end.reason && end.generated == other.end.generated;
  }
};

/// Generators of a tiny GPT-2, and their answers.
class Generators : public ::testing::Test {
 protected:
  Generators() { with_saved_model(small_gpt2(), folder_, 1); }

  std::unique_ptr<InferenceModel> open(const InferenceOptions& options) {
    return open_inference_model(*device_, folder_, options);
  }
  /// Callbacks that write down a request's answer in answers_[name].
  GenerationCallbacks recording(int name,
                                const std::function<Flow(const GeneratedAnswer&)>& more = {}) {
    return {.on_token =
                [this, name, more](const GeneratedToken& token) {
                  GeneratedAnswer& answer = answers_[name];
                  answer.ids.push_back(token.id);
                  answer.log_probabilities.push_back(token.log_probability);
                  return more ? more(answer) : Flow::more;
                },
            .on_end = [this, name](const GenerationEnd& end) { answers_[name].end = end; }};
  }
  static void run(Generator& generator) {
    while (!generator.idle()) generator.step();
  }
  static Tokens prompt_of(std::int64_t count, int seed) {
    return random_prompt(count, 317, static_cast<std::uint32_t>(seed));
  }
  /// Requests of all kinds: lengths, settings and seeds by number.
  static GenerationRequest request(int number) {
    GenerationRequest made{.prompt = prompt_of(1 + number * 7 % 60, number),
                           .max_tokens = 1 + number * 5 % 40,
                           .sampling = {.temperature = number % 3 == 0 ? 0 : 0.5 + 0.1 * number,
                                        .top_k = number % 4 == 1 ? 20 : 0,
                                        .top_p = number % 5 == 2 ? 0.9 : 1,
                                        .repetition_penalty = number % 2 == 0 ? 1 : 1.2,
                                        .seed = static_cast<std::uint64_t>(number)}};
    return made;
  }
  GeneratedAnswer alone(const GenerationRequest& request) {
    const auto model = open({.request_tokens = 120, .rows = 100});
    Generator generator(*model);
    generator.submit(request, recording(-1));
    run(generator);
    GeneratedAnswer answer = answers_[-1];
    answers_.erase(-1);
    return answer;
  }

  Scratch scratch_;
  const std::string folder_ = scratch_.path("model/");
  const std::unique_ptr<Device> device_ = cpu::open({.threads = 2});
  std::map<int, GeneratedAnswer> answers_;
};

}  // namespace zero::testing
