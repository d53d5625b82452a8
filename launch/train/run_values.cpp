// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#include "launch/train/run_values.h"

#include <algorithm>
#include <charconv>
#include <limits>
#include <optional>

#include "base/checked_math.h"
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

Json json_of(const DataPosition& position) {
  return {{"epoch", position.epoch},     {"sequences", position.sequences},
          {"of", position.of},           {"sequence_length", position.length},
          {"shuffle", position.shuffle}, {"seed", position.seed}};
}

/// Such a value, of a length or a number of parts, divides others.
std::int64_t positive(const Json& object, const char* name) {
  const std::int64_t value = count(object, name);
  ZERO_CHECK(value > 0, "the checkpoint's value \"{}\" is 0, expected at least 1", name);
  return value;
}

/// The tokens of the data named in a configuration: its texts begin with a file's number of them.
std::int64_t data_tokens(const Json& files) {
  std::int64_t tokens = 0;
  for (const Json& file : files) {
    const std::string text = file.is_string() ? file.get<std::string>() : file.dump();
    std::int64_t of_file = -1;
    std::from_chars(text.data(), text.data() + text.size(), of_file);
    ZERO_CHECK(of_file >= 0 && of_file <= std::numeric_limits<std::int32_t>::max(),
               "the checkpoint's value \"data.train\" has {}, expected a text that begins with a "
               "number of tokens",
               Json(text).dump());
    tokens += of_file;
  }
  return tokens;
}

/// Of a checkpoint that keeps none: its run had one batch in all steps.
DataPosition position_of(const Json& configuration, std::int64_t step) {
  const std::int64_t length = positive(configuration, "data.sequence_length");
  const Json& shuffle = field(configuration, "data.shuffle");
  const std::int64_t tokens = data_tokens(field(configuration, "data.train"));
  const DataOrder order{.sequences = std::max<std::int64_t>(1, (tokens - 1) / length),
                        .rows = positive(configuration, "train_batch_size"),
                        .shuffle = shuffle == Json(true),
                        .seed = static_cast<std::uint64_t>(count(configuration, "run.seed"))};
  return position_behind(order, length, checked_mul(step, order.rows));
}

/// Digests of the training files, in order.
std::vector<std::string> digests_of(const Json& data) {
  std::vector<std::string> digests;
  for (const Json& digest : field(data, "digests")) {
    ZERO_CHECK(digest.is_string(), "the checkpoint's value \"digests\" has {}, expected texts",
               digest.dump());
    digests.push_back(digest.get<std::string>());
  }
  return digests;
}

DataPosition position_in(const Json& json) {
  const std::int64_t epoch = count(json, "epoch");
  ZERO_CHECK(epoch <= std::numeric_limits<std::int32_t>::max(),
             "the checkpoint's value \"epoch\" is {}, expected a number below 2^31", epoch);
  return {.epoch = epoch,
          .sequences = count(json, "sequences"),
          .of = positive(json, "of"),
          .length = positive(json, "sequence_length"),
          .shuffle = field(json, "shuffle") == Json(true),
          .seed = static_cast<std::uint64_t>(count(json, "seed"))};
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
  all["data"] = json_of(position);
  all["data"]["digests"] = digests;
  if (loss_scaler) {
    all["loss_scaler"] = {{"scale", loss_scaler->scale},
                          {"good_steps", loss_scaler->good_steps},
                          {"hysteresis", loss_scaler->hysteresis}};
  }
  return all;
}

RunValues RunValues::read(const Json& json) {
  const Json& log = object(json, "log");
  const std::int64_t step = count(json, "step");
  const Json& configuration = object(json, "configuration");
  const bool has_position = json.contains("data");
  return {.log = {.run = text(log, "run"),
                  .step = step,
                  .first_loss = loss(log, "first_loss"),
                  .loss = loss(log, "loss")},
          .tokens = count(json, "tokens"),
          .position =
              has_position ? position_in(object(json, "data")) : position_of(configuration, step),
          .digests = has_position ? digests_of(object(json, "data")) : std::vector<std::string>{},
          .identity = configuration,
          .micro_batch = count(json, "micro_batch"),
          .skipped_in_row = count(json, "skipped_in_row"),
          .loss_scaler = loss_scaler_of(json),
          .kernels = text(object(json, "versions"), "kernels")};
}

}  // namespace zero
