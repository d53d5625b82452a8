// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#include <array>
#include <utility>

#include "base/error.h"
#include "model/gpt2.h"

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
  // Products of two sizes must fit what token ids and matrix libraries count with.
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

}  // namespace zero
