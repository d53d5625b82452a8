// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#include "optim/optimizer_config.h"

#include <fmt/ranges.h>

#include <limits>
#include <string>
#include <vector>

#include "base/error.h"

namespace zero {

std::string_view name_of(MomentFormat format) {
  switch (format) {
    case MomentFormat::fp32:
      return "fp32";
    case MomentFormat::bf16:
      return "bf16";
    default:
      return "8bit";
  }
}

MomentFormat moment_format_from_name(std::string_view name) {
  for (const MomentFormat format :
       {MomentFormat::fp32, MomentFormat::bf16, MomentFormat::eight_bit}) {
    if (name == name_of(format)) return format;
  }
  fail("moments are \"{}\"; expected fp32, bf16 or 8bit", name);
}

std::string_view name_of(OptimizerConfig::Kind kind) {
  switch (kind) {
    case OptimizerConfig::Kind::adamw:
      return "AdamW";
    case OptimizerConfig::Kind::adam:
      return "Adam";
    default:
      return "SGD";
  }
}

void validate(const OptimizerConfig& config) {
  std::vector<std::string> problems;
  const auto expect = [&](bool good, std::string_view name, double value, std::string_view range) {
    if (!good) problems.push_back(fmt::format("{} is {} (expected {})", name, value, range));
  };
  const auto fraction = [](double value) { return value >= 0 && value < 1; };
  const auto size = [](double value) {  // the update has it in fp32
    return value >= 0 && value <= std::numeric_limits<float>::max();
  };
  constexpr std::string_view kFraction = "0 or more, below 1";
  constexpr std::string_view kSize = "0 or more, and finite in fp32";
  if (config.kind != OptimizerConfig::Kind::sgd) {
    expect(fraction(config.beta1), "beta1", config.beta1, kFraction);
    expect(fraction(config.beta2), "beta2", config.beta2, kFraction);
    expect(size(config.epsilon), "epsilon", config.epsilon, kSize);
    // A block of tiny second moments is stored as zeros, whatever the first are.
    expect(config.moments != MomentFormat::eight_bit || static_cast<float>(config.epsilon) > 0,
           "epsilon", config.epsilon, "above 0 with 8-bit moments");
  } else {
    expect(fraction(config.momentum), "momentum", config.momentum, kFraction);
  }
  expect(size(config.weight_decay), "weight_decay", config.weight_decay, kSize);
  ZERO_CHECK(problems.empty(), "{}: {}", name_of(config.kind), fmt::join(problems, "; "));
}

}  // namespace zero
