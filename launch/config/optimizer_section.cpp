// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <optional>
#include <string>
#include <vector>

#include "launch/config/answers.h"
#include "launch/config/train_config.h"

namespace zero {
namespace {

constexpr const char* kMomentFormat = "optimizer.params.moments";
constexpr const char* kHalfMoments = "bf16.bf16_optimizer_states";

/// Refuses formats of the moments that contradict each other, or mean nothing. Returns whether none
/// did.
bool check_moments(const Configuration& values, const std::string& given, Refusals& refusals) {
  bool fits = true;
  const auto refuse = [&](const std::string& message, const std::vector<std::string>& sets) {
    refusals.add(values.source() + ": " + message, sets);
    fits = false;
  };
  const bool half = values.boolean(kHalfMoments);
  const auto no_half = answer_to_file(values, kHalfMoments, nullptr);
  const auto no_format = answer_to_file(values, kMomentFormat, nullptr);
  if (half && !values.boolean("bf16.enabled")) {
    refuse(fmt::format("{} is true, but bf16.enabled is false, so that the section has no effect; "
                       "enable it, or set {} to \"bf16\", which goes with any dtype",
                       kHalfMoments, kMomentFormat),
           no_half);
  }
  if (half && !given.empty() && given != "bf16") {
    refuse(fmt::format("{} is true, but {} is \"{}\"; leave one of the two out", kHalfMoments,
                       kMomentFormat, given),
           no_half.empty() ? no_format : no_half);
  }
  const bool keeps_none =
      values.text("optimizer.type") == "SGD" && values.number("optimizer.params.momentum") == 0;
  if (keeps_none && !given.empty() && given != "fp32") {
    refuse(fmt::format("{} is \"{}\", but SGD without momentum keeps no moments; leave it out, or "
                       "set optimizer.params.momentum",
                       kMomentFormat, given),
           no_format);
  }
  return fits;
}

/// The format of the moments, from our key or DeepSpeed's. The default is not filled in: a run's
/// identity has the key only if the format is another than fp32.
MomentFormat make_moments(Configuration& values, const std::string& given) {
  const bool half = values.boolean(kHalfMoments);
  if (half && given.empty()) values.resolve(kMomentFormat, "bf16", kHalfMoments);
  return half ? MomentFormat::bf16
              : moment_format_from_name(given.empty() ? std::string("fp32") : given);
}

}  // namespace

std::optional<OptimizerConfig> make_optimizer_config(Configuration& values, Refusals& refusals) {
  const std::string type = values.text("optimizer.type");
  const bool decoupled = values.boolean("optimizer.params.adam_w_mode");
  const std::string moments = values.is_null(kMomentFormat) ? "" : values.text(kMomentFormat);
  bool fits = check_moments(values, moments, refusals);
  if (type == "AdamW" && !decoupled) {
    const auto adam = answer_to_file(values, "optimizer.type", "Adam");
    refusals.add(
        fmt::format("{}: optimizer.params.adam_w_mode is false with optimizer.type "
                    "\"AdamW\"; use type \"Adam\" for weight decay inside the gradient",
                    values.source()),
        adam.empty() ? answer_to_file(values, "optimizer.params.adam_w_mode", nullptr) : adam);
    fits = false;
  }
  if (!fits) return std::nullopt;
  OptimizerConfig config;
  config.kind = type == "SGD" ? OptimizerConfig::Kind::sgd
                : decoupled   ? OptimizerConfig::Kind::adamw
                              : OptimizerConfig::Kind::adam;
  const auto& betas = values.at("optimizer.params.betas").value;
  config.beta1 = betas[0].get<double>();
  config.beta2 = betas[1].get<double>();
  config.epsilon = values.number("optimizer.params.eps");
  config.weight_decay = values.number("optimizer.params.weight_decay");
  config.momentum = values.number("optimizer.params.momentum");
  config.moments = make_moments(values, moments);
  return config;
}

}  // namespace zero
