// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#include "model/model_config.h"

#include <array>
#include <cmath>
#include <utility>

#include "base/error.h"
#include "model/head_split.h"
#include "model/tensor_specs.h"

namespace zero {
namespace {

// Sizes of the published models; names by their true parameter counts.
constexpr std::array<std::pair<std::string_view, Gpt2Config>, 4> kNamed{{
    {"gpt2-124m", {12, 768, 12, 1024, 50257}},
    {"gpt2-350m", {24, 1024, 16, 1024, 50257}},
    {"gpt2-774m", {36, 1280, 20, 1024, 50257}},
    {"gpt2-1558m", {48, 1600, 25, 1024, 50257}},
}};

void check_field(std::string_view field, std::int64_t value) {
  // Products of two sizes must fit the integers of token ids and matrix libraries.
  constexpr std::int64_t kLargest = 1 << 24;
  ZERO_CHECK(value >= 1 && value <= kLargest, "model.{} is {}, expected 1 to {}", field, value,
             kLargest);
}

}  // namespace

std::optional<Gpt2Config> Gpt2Config::by_name(std::string_view name) {
  for (const auto& [known, config] : kNamed) {
    if (known == name) return config;
  }
  return std::nullopt;
}

void Gpt2Config::validate() const {
  check_field("layers", layers);
  check_field("width", width);
  check_field("heads", heads);
  check_field("context", context);
  check_field("vocabulary", vocabulary);
  ZERO_CHECK(width % heads == 0, "model.width is {}, expected a multiple of model.heads = {}",
             width, heads);
}

std::int64_t Gpt2Config::parameter_count() const {
  const std::int64_t norms = 4 * width;
  const std::int64_t matrices = 12 * width * width;  // 3 + 1 of attention, 4 + 4 of the MLP
  const std::int64_t biases = 9 * width;             // 3 + 1, 4 + 1
  return (vocabulary + context) * width + layers * (norms + matrices + biases) + 2 * width;
}

void LlamaConfig::validate() const {
  check_field("layers", layers);
  check_field("width", width);
  check_field("heads", heads);
  check_field("kv_heads", kv_heads);
  check_field("intermediate", intermediate);
  check_field("context", context);
  check_field("vocabulary", vocabulary);
  ZERO_CHECK(heads % kv_heads == 0, "model.heads is {}, expected a multiple of model.kv_heads = {}",
             heads, kv_heads);
  ZERO_CHECK(head_width != 0 || width % heads == 0,
             "model.width is {}, expected a multiple of model.heads = {}, or a model.head_width of "
             "its own",
             width, heads);
  check_field("head_width", head_elements());
  ZERO_CHECK(head_elements() >= 2 && head_elements() % 2 == 0,
             "model.head_width is {}, expected an even number: rotary embeddings turn pairs",
             head_elements());
  ZERO_CHECK(std::isfinite(norm_epsilon) && norm_epsilon > 0,
             "model.norm_epsilon is {}, expected more than 0", norm_epsilon);
  rotary.validate();
}

std::int64_t LlamaConfig::parameter_count() const {
  const std::int64_t queries = heads * head_elements();
  const std::int64_t qkv = queries + 2 * kv_heads * head_elements();
  const std::int64_t attention =
      qkv * width + queries * width + (qkv_bias == QkvBias::present ? qkv : 0);
  const std::int64_t tables = (head == Head::tied ? 1 : 2) * vocabulary * width;
  return tables + layers * (attention + 3 * intermediate * width + 2 * width) + width;
}

std::string_view family_of(const ModelConfig& config) {
  return std::holds_alternative<Gpt2Config>(config) ? "gpt2" : "llama";
}

std::int64_t vocabulary_of(const ModelConfig& config) {
  return std::visit([](const auto& family) { return family.vocabulary; }, config);
}

std::int64_t context_of(const ModelConfig& config) {
  return std::visit([](const auto& family) { return family.context; }, config);
}

std::int64_t layers_of(const ModelConfig& config) {
  return std::visit([](const auto& family) { return family.layers; }, config);
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
