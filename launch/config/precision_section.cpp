// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0

// The sections fp16 and bf16, and other names of what a run computes in.
#include <fmt/format.h>

#include <cmath>

#include "base/error.h"
#include "launch/config/answers.h"
#include "launch/config/refusals.h"
#include "launch/config/train_config.h"

namespace zero {

void resolve_autocast(Configuration& values) {
  if (!values.boolean("torch_autocast.enabled")) return;
  const char* const key = "torch_autocast.dtype";
  const std::string dtype = values.text(key);
  if (dtype.empty()) {
    throw Refusal(fmt::format("{}: torch_autocast.enabled is true, but {} is not given; set it to "
                              "\"bfloat16\" or \"float16\"",
                              values.source(), key),
                  answer_of(key, "bfloat16"));
  }
  const bool fp16 = dtype.find("bf") == std::string::npos;
  const char* const other = fp16 ? "bf16.enabled" : "fp16.enabled";
  if (values.boolean(other)) {
    throw refusal_of(values, {{other, false}},
                     "{} is \"{}\", but {} is true; a run computes in one of them", key, dtype,
                     other);
  }
  values.resolve(fp16 ? "fp16.enabled" : "bf16.enabled", true, key);
}

void check_compute_dtype(const Configuration& values) {
  if (!values.boolean("fp16.enabled") || !values.boolean("bf16.enabled")) return;
  throw refusal_of(values, {{"fp16.enabled", false}, {"bf16.enabled", false}},
                   "fp16.enabled and bf16.enabled are both true; a run computes in one of them");
}

DType make_compute_dtype(const Configuration& values) {
  const bool fp16 = values.boolean("fp16.enabled");
  const bool bf16 = values.boolean("bf16.enabled");
  const bool bf16_is_answer = !answer_to_file(values, {{"fp16.enabled", false}}).empty();
  if (fp16 && !(bf16 && bf16_is_answer)) return DType::fp16;
  return bf16 ? DType::bf16 : DType::fp32;
}

void check_communication_dtype(const Configuration& values, DType compute) {
  const char* const key = "communication_data_type";
  std::string name = values.text(key);
  if (name == "bfp16") name = "bf16";  // DeepSpeed has both
  if (name.empty() || name == "fp32" || name == name_of(compute)) return;
  const std::string own = compute == DType::fp32 ? "" : fmt::format("\"{}\" or ", name_of(compute));
  throw refusal_of(values, {{key}},
                   "{} is \"{}\", but the run computes in {}: gradients travel in that type and "
                   "sums in fp32; leave it out, or set {}\"fp32\"",
                   key, name, name_of(compute), own);
}

std::optional<LossScaleRule> make_loss_scale_rule(const Configuration& values) {
  if (make_compute_dtype(values) != DType::fp16) return std::nullopt;
  const double fixed = values.number("fp16.loss_scale");
  if (fixed != 0) {
    const LossScaleRule rule{.dynamic = false, .initial = fixed};
    at_place(values.source() + ": fp16.loss_scale", [&] { validate(rule); });
    return rule;
  }
  const auto power = static_cast<int>(values.integer("fp16.initial_scale_power"));
  LossScaleRule rule{.initial = std::ldexp(1.0, power),
                     .window = values.integer("fp16.loss_scale_window"),
                     .hysteresis = values.integer("fp16.hysteresis"),
                     .consecutive_hysteresis = values.boolean("fp16.consecutive_hysteresis"),
                     .minimum = values.number("fp16.min_loss_scale")};
  ZERO_CHECK(rule.initial >= rule.minimum,
             "{}: fp16.initial_scale_power is {}, so the loss scale begins at {:g}, below "
             "fp16.min_loss_scale {:g}; raise the first or lower the second",
             values.source(), power, rule.initial, rule.minimum);
  return rule;
}

std::vector<Option> precision_options() {
  using enum ValueType;
  const std::string dtypes = "fp16.enabled and bf16.enabled decide it";
  const std::string casts = "fp16.enabled and bf16.enabled decide what is computed in which type";
  const std::string scale = "bf16 has fp32's range and needs no loss scale";
  constexpr double kLeast = 1.2e-38;  // fp32's normal numbers
  constexpr double kMost = 3.4e38;
  return {
      honour("fp16.enabled", boolean, "false",
             "compute in fp16 with a loss scale, fp32 master values; the other keys of fp16 count "
             "only then"),
      honour("fp16.loss_scale", number, "0", "static loss scale; 0: dynamic, by the keys below")
          .from(0, kMost),
      honour("fp16.initial_scale_power", integer, "16",
             "the first dynamic loss scale is 2 to this power")
          .from(0, 127),
      honour("fp16.loss_scale_window", integer, "1000",
             "steps without overflow from one doubling of the loss scale to the next; the first "
             "after an overflow takes one step more")
          .from(1),
      honour(
          "fp16.hysteresis", integer, "2",
          "the loss scale halves at the overflow of this number and at each later one; a doubling "
          "restarts the count")
          .from(1),
      honour("fp16.consecutive_hysteresis", boolean, "false",
             "every step without overflow restarts the count of hysteresis"),
      honour("fp16.min_loss_scale", number, "1",
             "an overflow at this loss scale that hysteresis does not tolerate ends the run")
          .from(kLeast, kMost),
      accept("fp16.auto_cast", boolean, "false", "inputs are token ids, which are not cast"),
      only("fp16.fp16_master_weights_and_grads", boolean, "false", "master values are fp32"),
      honour(
          "bf16.enabled", boolean, "false",
          "compute in bf16, fp32 master values; false, and fp16.enabled too: everything in fp32"),
      accept("bf16.immediate_grad_update", boolean, "false", "the reduction is `reduction`'s"),
      accept("bf16.check_grad_overflow", boolean, "true", "gradients are always checked"),
      accept("bf16.auto_cast", boolean, "false", "inputs are token ids, which are not cast"),
      accept("bf16.loss_scale", number, "0", scale),
      accept("bf16.initial_scale_power", integer, "16", scale),
      accept("bf16.loss_scale_window", integer, "1000", scale),
      accept("bf16.hysteresis", integer, "2", scale),
      accept("bf16.min_loss_scale", number, "1", scale),
      only("bf16.bf16_master_weights_and_grads", boolean, "false", "master values are fp32"),
      honour(
          "bf16.bf16_optimizer_states", boolean, "false",
          "DeepSpeed's name of optimizer.params.moments \"bf16\", for runs in bf16; master values "
          "stay fp32"),
      only("data_types.param_dtype", text, "null", dtypes),
      only("data_types.buffer_dtype", text, "null", dtypes),
      honour(
          "torch_autocast.enabled", boolean, "false",
          "DeepSpeed's other name of bf16.enabled or fp16.enabled, as torch_autocast.dtype says"),
      honour("torch_autocast.dtype", text, "null", "the dtype of torch_autocast")
          .one_of({"bfloat16", "bf16", "torch.bfloat16", "float16", "fp16", "torch.float16"}),
      accept("torch_autocast.lower_precision_safe_modules", anything, "null",
             "matrix products compute in the dtype, sums and norms in fp32"),
      unless_enabled("amp", casts),
      unless_enabled("fp8", casts),
  };
}

}  // namespace zero
