// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#include "launch/run_values.h"

#include <optional>

#include "base/error.h"

namespace zero {
namespace {

using Json = nlohmann::ordered_json;

const Json& field(const Json& object, const char* name) {
  ZERO_CHECK(object.is_object() && object.contains(name),
             "the checkpoint's values have no field \"{}\", which a resume needs: another program "
             "or version wrote them; its folder `weights` can be given as run.init",
             name);
  return object.at(name);
}

std::int64_t count(const Json& object, const char* name) {
  const Json& value = field(object, name);
  ZERO_CHECK(value.is_number_unsigned() && value.get<std::uint64_t>() >> 63U == 0,
             "the checkpoint's value \"{}\" is {}, expected a whole number below 2^63", name,
             value.dump());
  return value.get<std::int64_t>();
}

std::string text(const Json& object, const char* name) {
  const Json& value = field(object, name);
  ZERO_CHECK(value.is_string(), "the checkpoint's value \"{}\" is {}, expected a text", name,
             value.dump());
  return value.get<std::string>();
}

/// A loss that was not finite is null.
std::optional<double> loss(const Json& object, const char* name) {
  const Json& value = field(object, name);
  if (value.is_null()) return std::nullopt;
  ZERO_CHECK(value.is_number(), "the checkpoint's value \"{}\" is {}, expected a number", name,
             value.dump());
  return value.get<double>();
}

const Json& object(const Json& parent, const char* name) {
  const Json& value = field(parent, name);
  ZERO_CHECK(value.is_object(), "the checkpoint's value \"{}\" is {}, expected an object", name,
             value.dump());
  return value;
}

/// Of a checkpoint of an fp16 run.
std::optional<LossScaler::State> loss_scaler_of(const Json& json) {
  if (!object(json, "configuration").contains("fp16.enabled")) return std::nullopt;
  const Json& state = object(json, "loss_scaler");
  const std::optional<double> scale = loss(state, "scale");
  ZERO_CHECK(scale.has_value(), "the checkpoint's value \"scale\" is null, expected a number");
  return LossScaler::State{.scale = *scale,
                           .good_steps = count(state, "good_steps"),
                           .hysteresis = count(state, "hysteresis")};
}

Json json_of(std::optional<double> loss) { return loss ? Json(*loss) : Json(); }

}  // namespace

Json RunValues::json() const {
  Json all{
      {"step", log.step},
      {"tokens", tokens},
      {"configuration", identity},
      {"micro_batch", micro_batch},
      {"skipped_in_row", skipped_in_row},
      {"versions", {{"zero", version}, {"kernels", kernels}}},
      {"log",
       {{"run", log.run}, {"first_loss", json_of(log.first_loss)}, {"loss", json_of(log.loss)}}}};
  if (loss_scaler) {
    all["loss_scaler"] = {{"scale", loss_scaler->scale},
                          {"good_steps", loss_scaler->good_steps},
                          {"hysteresis", loss_scaler->hysteresis}};
  }
  return all;
}

RunValues RunValues::read(const Json& json) {
  const Json& log = object(json, "log");
  return {.log = {.run = text(log, "run"),
                  .step = count(json, "step"),
                  .first_loss = loss(log, "first_loss"),
                  .loss = loss(log, "loss")},
          .identity = object(json, "configuration"),
          .micro_batch = count(json, "micro_batch"),
          .skipped_in_row = count(json, "skipped_in_row"),
          .loss_scaler = loss_scaler_of(json),
          .kernels = text(object(json, "versions"), "kernels")};
}

}  // namespace zero
