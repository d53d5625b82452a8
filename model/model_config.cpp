// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#include "model/model_config.h"

#include "model/head_split.h"
#include "model/tensor_specs.h"

namespace zero {

std::string_view family_of(const ModelConfig& config) {
  return std::holds_alternative<Gpt2Config>(config) ? "gpt2" : "llama";
}

std::int64_t vocabulary_of(const ModelConfig& config) {
  return std::visit([](const auto& family) { return family.vocabulary; }, config);
}

std::int64_t context_of(const ModelConfig& config) {
  return std::visit([](const auto& family) { return family.context; }, config);
}

void validate(const ModelConfig& config) {
  std::visit([](const auto& family) { family.validate(); }, config);
}

void validate(const ModelConfig& config, int tensor_ranks) {
  validate(config);
  const auto check = [&](const auto& family) {
    std::int64_t kv_heads = family.heads;
    if constexpr (requires { family.kv_heads; }) kv_heads = family.kv_heads;
    HeadSplit::of(family.heads, kv_heads, 0, tensor_ranks);
    check_share("model.vocabulary", family.vocabulary, tensor_ranks);
    if constexpr (requires { family.intermediate; }) {
      check_share("model.intermediate", family.intermediate, tensor_ranks);
    }
  };
  std::visit(check, config);
}

}  // namespace zero
