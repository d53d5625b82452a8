// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0

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
  const auto refuse = [&](const Refusal& refusal) {
    refusals.add(refusal);
    fits = false;
  };
  const bool half = values.boolean(kHalfMoments);
  if (half && !values.boolean("bf16.enabled")) {
    refuse(refusal_of(values, {{kHalfMoments}},
                      "{} is true, but bf16.enabled is false, so that the section has no effect; "
                      "enable it, or set {} to \"bf16\", which goes with any dtype",
                      kHalfMoments, kMomentFormat));
  }
  if (half && !given.empty() && given != "bf16") {
    refuse(refusal_of(values, {{kHalfMoments}, {kMomentFormat}},
                      "{} is true, but {} is \"{}\"; leave one of the two out", kHalfMoments,
                      kMomentFormat, given));
  }
  const bool keeps_none =
      values.text("optimizer.type") == "SGD" && values.number("optimizer.params.momentum") == 0;
  if (keeps_none && !given.empty() && given != "fp32") {
    refuse(refusal_of(values, {{kMomentFormat}},
                      "{} is \"{}\", but SGD without momentum keeps no moments; leave it out, or "
                      "set optimizer.params.momentum",
                      kMomentFormat, given));
  }
  return fits;
}

}  // namespace

std::optional<OptimizerConfig> make_optimizer_config(Configuration& values, Refusals& refusals) {
  const std::string type = values.text("optimizer.type");
  const bool decoupled = values.boolean("optimizer.params.adam_w_mode");
  const std::string moments = values.text(kMomentFormat);
  bool fits = check_moments(values, moments, refusals);
  if (type == "AdamW" && !decoupled) {
    refusals.add(
        refusal_of(values, {{"optimizer.type", "Adam"}, {"optimizer.params.adam_w_mode"}},
                   "optimizer.params.adam_w_mode is false with optimizer.type \"AdamW\"; use type "
                   "\"Adam\" for weight decay inside the gradient"));
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
  // From our key or DeepSpeed's. The default is not filled in: a run's identity has the key only if
  // the format is another than fp32.
  const bool half = values.boolean(kHalfMoments);
  if (half && moments.empty()) values.resolve(kMomentFormat, "bf16", kHalfMoments);
  config.moments = half              ? MomentFormat::bf16
                   : moments.empty() ? MomentFormat::fp32
                                     : moment_format_from_name(moments);
  return config;
}

std::vector<Option> optimizer_options() {
  using enum ValueType;
  const std::vector<std::string> adam{"AdamW", "Adam"};
  const std::vector<std::string> sgd{"SGD"};
  return {
      honour("optimizer.type", text, "\"AdamW\"", "the update rule")
          .one_of({"AdamW", "Adam", "SGD"}),
      honour("optimizer.params.lr", number, "0.001", "learning rate").from(0, 1e6),
      honour("optimizer.params.betas", betas, "[0.9, 0.999]", "decay of the two moments").of(adam),
      honour("optimizer.params.eps", number, "1e-8", "added to the root of the second moment")
          .from(0, 1)
          .of(adam),
      honour("optimizer.params.weight_decay", number, "0.0",
             "of matrices and embeddings; biases and norms have none")
          .from(0, 1e6),
      honour("optimizer.params.adam_w_mode", boolean, "true",
             "decoupled weight decay; false only with Adam")
          .of(adam),
      honour("optimizer.params.momentum", number, "0.0", "as PyTorch's").from(0, 1).of(sgd),
      honour("optimizer.params.moments", text, "null",
             "memory format of the moments: 8bit has blocks of 256 with a scale each, bf16 is "
             "rounded stochastically; null: bf16 if bf16.bf16_optimizer_states, else fp32")
          .one_of({"fp32", "bf16", "8bit"}),
      accept("optimizer.params.torch_adam", boolean, "false", "there is one implementation")
          .of(adam),
      only("optimizer.params.bias_correction", boolean, "true",
           "moments are always corrected for their start")
          .of(adam),
      only("optimizer.params.amsgrad", boolean, "false",
           "the running maximum of AMSGrad is not kept")
          .of(adam),
      only("optimizer.params.nesterov", boolean, "false", "momentum is PyTorch's plain one")
          .of(sgd),
      only("optimizer.params.dampening", number, "0.0", "momentum is not dampened").of(sgd),
  };
}

}  // namespace zero
