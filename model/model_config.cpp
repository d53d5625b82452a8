// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#include "model/model_config.h"

#include <array>
#include <utility>

#include "architecture/decoder_shape.h"

namespace zero {
namespace {

// Sizes of the published models; names by their true parameter counts.
constexpr std::array<std::pair<std::string_view, Gpt2Config>, 4> kNamed{{
    {"gpt2-124m", {12, 768, 12, 1024, 50257}},
    {"gpt2-350m", {24, 1024, 16, 1024, 50257}},
    {"gpt2-774m", {36, 1280, 20, 1024, 50257}},
    {"gpt2-1558m", {48, 1600, 25, 1024, 50257}},
}};

}  // namespace

std::optional<Gpt2Config> Gpt2Config::by_name(std::string_view name) {
  for (const auto& [known, config] : kNamed) {
    if (known == name) return config;
  }
  return std::nullopt;
}

void Gpt2Config::validate() const { decoder_shape(*this); }
std::int64_t Gpt2Config::parameter_count() const { return decoder_shape(*this).parameter_count(); }
void LlamaConfig::validate() const { decoder_shape(*this); }
std::int64_t LlamaConfig::parameter_count() const { return decoder_shape(*this).parameter_count(); }

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

void validate(const ModelConfig& config) { decoder_shape(config).validate(); }

void validate(const ModelConfig& config, int tensor_ranks) {
  decoder_shape(config).validate(tensor_ranks);
}

}  // namespace zero
