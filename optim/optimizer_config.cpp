// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#include "optim/optimizer_config.h"

#include <fmt/ranges.h>

#include <array>
#include <limits>

#include "base/error.h"

namespace zero {
namespace {

/// Whether `value` is a size that the update can hold in fp32.
bool is_fp32_size(double value) { return value >= 0 && value <= std::numeric_limits<float>::max(); }

}  // namespace

std::string_view name_of(MomentFormat format) {
  constexpr std::array<std::string_view, 3> kNames{"fp32", "bf16", "8bit"};
  return kNames.at(static_cast<std::size_t>(format));
}

MomentFormat moment_format_from_name(std::string_view name) {
  for (const MomentFormat format :
       {MomentFormat::fp32, MomentFormat::bf16, MomentFormat::eight_bit}) {
    if (name == name_of(format)) return format;
  }
  fail("moments are \"{}\"; expected fp32, bf16 or 8bit", name);
}

std::string_view name_of(OptimizerConfig::Kind kind) {
  constexpr std::array<std::string_view, 3> kNames{"AdamW", "Adam", "SGD"};
  return kNames.at(static_cast<std::size_t>(kind));
}

void validate(const OptimizerConfig& config) {
  std::vector<std::string> problems;
  const auto expect = [&](bool good, std::string_view name, double value, std::string_view range) {
    if (!good) problems.push_back(fmt::format("{} is {} (expected {})", name, value, range));
  };
  const auto fraction = [](double value) { return value >= 0 && value < 1; };
  constexpr std::string_view kFraction = "0 or more, below 1";
  constexpr std::string_view kSize = "0 or more, and finite in fp32";
  if (config.kind != OptimizerConfig::Kind::sgd) {
    expect(fraction(config.beta1), "beta1", config.beta1, kFraction);
    expect(fraction(config.beta2), "beta2", config.beta2, kFraction);
    expect(is_fp32_size(config.epsilon), "epsilon", config.epsilon, kSize);
    // A block of tiny second moments is stored as zeros, whatever the first are.
    expect(config.moments != MomentFormat::eight_bit || static_cast<float>(config.epsilon) > 0,
           "epsilon", config.epsilon, "above 0 with 8-bit moments");
  } else {
    expect(fraction(config.momentum), "momentum", config.momentum, kFraction);
  }
  expect(is_fp32_size(config.weight_decay), "weight_decay", config.weight_decay, kSize);
  ZERO_CHECK(problems.empty(), "{}: {}", name_of(config.kind), fmt::join(problems, "; "));
}

void validate(const ParameterGroup& group) {
  const double decay = group.weight_decay.value_or(0.0);
  ZERO_CHECK(
      is_fp32_size(group.learning_rate_scale) && is_fp32_size(decay),
      "parameter group \"{}\" has learning_rate_scale {} and weight_decay {}, expected finite "
      "values of 0 or more",
      group.pattern, group.learning_rate_scale, decay);
}

GroupSettings settings_for(const std::vector<ParameterGroup>& groups, std::string_view full_name,
                           double default_weight_decay) {
  for (const ParameterGroup& group : groups) {
    if (!matches(group.pattern, full_name)) continue;
    validate(group);
    return {.learning_rate_scale = group.learning_rate_scale,
            .weight_decay = group.weight_decay.value_or(default_weight_decay)};
  }
  return {.learning_rate_scale = 1, .weight_decay = default_weight_decay};
}

bool matches(std::string_view pattern, std::string_view text) {
  std::size_t p = 0;
  std::size_t t = 0;
  std::size_t star = std::string_view::npos;  // the last '*' met
  std::size_t resume = 0;                     // end of the run it matches so far
  while (t < text.size()) {
    if (p < pattern.size() && pattern[p] == '*') {
      star = p++;
      resume = t;
    } else if (p < pattern.size() && (pattern[p] == '?' || pattern[p] == text[t])) {
      ++p;
      ++t;
    } else if (star != std::string_view::npos) {
      p = star + 1;  // let the star take one character more
      t = ++resume;
    } else {
      return false;
    }
  }
  while (p < pattern.size() && pattern[p] == '*') ++p;
  return p == pattern.size();
}

}  // namespace zero
