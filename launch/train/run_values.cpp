// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#include "launch/train/run_values.h"

#include <algorithm>
#include <charconv>
#include <limits>
#include <optional>

#include "base/checked_math.h"
#include "base/error.h"
#include "base/json_fields.h"

namespace zero {
namespace {

using Json = nlohmann::ordered_json;

/// A loss that was not finite is null.
std::optional<double> loss(JsonFields& fields, const char* name) {
  return fields.has(name) ? std::optional(fields.number(name)) : std::nullopt;
}

/// Of a checkpoint of an fp16 run.
std::optional<LossScaler::State> loss_scaler_of(JsonFields& fields) {
  if (!fields.object("configuration").has("fp16.enabled")) return std::nullopt;
  JsonFields state = fields.object("loss_scaler");
  return LossScaler::State{.scale = state.number("scale"),
                           .good_steps = state.count("good_steps"),
                           .hysteresis = state.count("hysteresis")};
}

Json json_of(const DataPosition& position) {
  return {{"epoch", position.epoch},     {"sequences", position.sequences},
          {"of", position.of},           {"sequence_length", position.length},
          {"shuffle", position.shuffle}, {"seed", position.seed}};
}

/// Such a value, of a length or a number of parts, divides others.
std::int64_t positive(JsonFields& fields, const char* name) {
  const std::int64_t value = fields.count(name);
  if (value == 0) fields.refuse(name, "found 0, expected at least 1");
  return value;
}

/// The tokens of the data named in a configuration: its texts begin with a file's number of them.
std::int64_t data_tokens(JsonFields& configuration) {
  constexpr const char* kFiles = "data.train";
  std::int64_t tokens = 0;
  for (const std::string& text : configuration.texts(kFiles)) {
    std::int64_t of_file = -1;
    std::from_chars(text.data(), text.data() + text.size(), of_file);
    if (of_file < 0 || of_file > std::numeric_limits<std::int32_t>::max()) {
      configuration.refuse(kFiles, "found {}, expected texts that begin with a number of tokens",
                           Json(text).dump());
    }
    tokens += of_file;
  }
  return tokens;
}

/// Of a checkpoint that keeps none: its run had one batch in all steps.
DataPosition position_of(JsonFields configuration, std::int64_t step) {
  const std::int64_t length = positive(configuration, "data.sequence_length");
  const std::int64_t tokens = data_tokens(configuration);
  const DataOrder order{.sequences = std::max<std::int64_t>(1, (tokens - 1) / length),
                        .rows = positive(configuration, "train_batch_size"),
                        .shuffle = configuration.flag("data.shuffle"),
                        .seed = static_cast<std::uint64_t>(configuration.count("run.seed"))};
  return position_behind(order, length, checked_mul(step, order.rows));
}

DataPosition position_in(JsonFields fields) {
  const std::int64_t epoch = fields.count("epoch");
  if (epoch > std::numeric_limits<std::int32_t>::max()) {
    fields.refuse("epoch", "found {}, expected a number below 2^31", epoch);
  }
  return {.epoch = epoch,
          .sequences = fields.count("sequences"),
          .of = positive(fields, "of"),
          .length = positive(fields, "sequence_length"),
          .shuffle = fields.flag("shuffle"),
          .seed = static_cast<std::uint64_t>(fields.count("seed"))};
}

RunValues values_of(JsonFields fields) {
  JsonFields log = fields.object("log");
  const std::int64_t step = fields.count("step");
  const bool has_position = fields.has("data");
  if (!fields.has("configuration")) fields.refuse("configuration", "is missing");
  return {
      .log = {.run = log.text("run"),
              .step = step,
              .first_loss = loss(log, "first_loss"),
              .loss = loss(log, "loss")},
      .tokens = fields.count("tokens"),
      .position = has_position ? position_in(fields.object("data"))
                               : position_of(fields.object("configuration"), step),
      .digests = has_position ? fields.object("data").texts("digests") : std::vector<std::string>{},
      .micro_batch = fields.count("micro_batch"),
      .skipped_in_row = fields.count("skipped_in_row"),
      .loss_scaler = loss_scaler_of(fields),
      .kernels = fields.object("versions").text("kernels")};
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
  try {
    RunValues values = values_of({nlohmann::json(json), "the checkpoint's values", ""});
    values.identity = json.at("configuration");
    return values;
  } catch (const Error& error) {
    fail(
        "{}, which a resume needs: another program or version wrote them; the checkpoint's folder "
        "`weights` can be given as run.init",
        error.what());
  }
}

}  // namespace zero
