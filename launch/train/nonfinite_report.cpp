// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#include "launch/train/nonfinite_report.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <nlohmann/json.hpp>
#include <vector>

#include "base/host.h"
#include "collectives/host_values.h"
#include "collectives/mesh.h"
#include "engine/engine.h"
#include "files/file_system.h"
#include "launch/config/train_config.h"
#include "launch/data/batches.h"

namespace zero {
namespace {

using Json = nlohmann::ordered_json;

constexpr std::string_view kName = "nonfinite_step_";
constexpr std::int64_t kMostTokenBytes = std::int64_t{64} << 20;  // of tokens.bin
constexpr std::int64_t kMostRows = std::int64_t{1} << 16;
constexpr std::int64_t kValuesAtOnce = std::int64_t{1} << 18;
constexpr std::int64_t kValuesAround = 4;  // values before and behind the first bad one

/// JSON has no NaN.
Json json_number(double value) {
  if (std::isfinite(value)) return value;
  return std::isnan(value) ? "nan" : value > 0 ? "inf" : "-inf";
}

/// Counts the values of a tensor in this rank's shard.
class TensorExamination {
 public:
  void add(std::int64_t begin, std::span<const float> values) {
    for (std::size_t i = 0; i < values.size(); ++i) {
      const float value = values[i];
      if (std::isfinite(value)) {
        least_ = std::min(least_, value);
        greatest_ = std::max(greatest_, value);
        continue;
      }
      (std::isnan(value) ? nan_ : infinite_) += 1;
      if (first_.is_null()) note_first(begin, static_cast<std::int64_t>(i), values);
    }
    count_ += static_cast<std::int64_t>(values.size());
  }

  Json json() const {
    Json json{{"elements", count_}, {"nan", nan_}, {"infinite", infinite_}};
    if (nan_ + infinite_ < count_) {
      json["least_finite"] = least_;
      json["greatest_finite"] = greatest_;
    }
    if (!first_.is_null()) json["first"] = first_;
    return json;
  }

 private:
  void note_first(std::int64_t begin, std::int64_t at, std::span<const float> values) {
    const std::int64_t from = std::max<std::int64_t>(0, at - kValuesAround);
    const std::int64_t end = std::min<std::int64_t>(std::ssize(values), at + kValuesAround + 1);
    Json around = Json::array();
    for (std::int64_t i = from; i < end; ++i) {
      around.push_back(json_number(values[static_cast<std::size_t>(i)]));
    }
    first_ = {{"element", begin + at}, {"values_from", begin + from}, {"values", around}};
  }

  std::int64_t count_ = 0;
  std::int64_t nan_ = 0;
  std::int64_t infinite_ = 0;
  float least_ = std::numeric_limits<float>::infinity();
  float greatest_ = -std::numeric_limits<float>::infinity();
  Json first_{};
};

/// One state of a tensor, as far as this rank's shard has it; null if there is no such state.
Json examined(const NonfiniteStep& step, const std::string& name, StateKind kind) {
  const EngineStates& states = step.engine.states();
  const std::vector<LogicalTensor> tensors = states.tensors(kind);
  const auto tensor = std::ranges::find(tensors, name, &LogicalTensor::name);
  if (tensor == tensors.end()) return {};
  TensorExamination examination;
  std::vector<float> values;
  for (const StateRun& run : states.runs(*tensor)) {
    for (std::int64_t at = 0; at < run.count; at += kValuesAtOnce) {
      values.resize(static_cast<std::size_t>(std::min(kValuesAtOnce, run.count - at)));
      states.copy(*tensor, run.begin + at, View::of(std::span(values)), step.device.compute());
      step.device.compute().synchronize();
      examination.add(run.begin + at, values);
    }
  }
  Json json = examination.json();
  json["shape"] = tensor->shape;
  json["dtype"] = std::string(name_of(tensor->dtype));
  return json;
}

/// What this rank alone knows.
Json of_rank(const NonfiniteStep& step) {
  Json json{{"rank", step.mesh.world().rank()},
            {"host", host_name()},
            {"data_rank", step.mesh.data().rank()}};
  Json& losses = json["losses"] = Json::array();
  for (const double loss : step.losses) losses.push_back(json_number(loss));
  const auto& tensor = step.report.nonfinite;
  if (!tensor || *tensor == "loss") return json;
  try {
    for (const StateKind kind : {StateKind::gradient, StateKind::parameter}) {
      json[std::string(name_of(kind))] = examined(step, *tensor, kind);
    }
  } catch (const std::exception& error) {  // the other ranks wait for what this one has
    json["not_examined"] = error.what();
  }
  return json;
}

std::int64_t widest_token(const TokenStream& stream) {
  std::int64_t bytes = 2;
  for (const TokenFile& file : stream.files()) bytes = std::max(bytes, file.token_bytes());
  return bytes;
}

/// Writes the rows of a step one behind the other, and lists them.
class Rows {
 public:
  Rows(const NonfiniteStep& step, const std::string& path)
      : step_(step),
        length_(step.config.data.sequence_length),
        token_bytes_(widest_token(step.batches.train_stream())),
        writer_(path, token_bytes_),
        most_(std::min(kMostRows, kMostTokenBytes / token_bytes_ / length_)) {}

  Json write() {
    const int ranks = step_.mesh.data().size();
    Json all = Json::array();
    for (std::int64_t m = 0; m < step_.order.micro_batches; ++m) {
      Json rows = Json::array();
      for (const std::int64_t sequence : step_.order.sequences_of(step_.report.step - 1, m)) {
        if (count_ < most_) rows.push_back(write_row(sequence));
      }
      all.push_back({{"micro_batch", m}, {"data_rank", m % ranks}, {"rows", std::move(rows)}});
    }
    writer_.write({&last_target_, 1});
    writer_.finish();
    writer_.commit();
    return {{"file", "tokens.bin"},
            {"sequence_length", length_},
            {"rows", count_},
            {"rows_of_the_step", step_.config.batch.train},
            // A row's last target is the first token of the row behind it, as of any token file.
            {"rows_with_another_last_target", others_},
            {"micro_batches", std::move(all)}};
  }

 private:
  Json write_row(std::int64_t sequence) {
    std::vector<std::int32_t> inputs(static_cast<std::size_t>(length_));
    std::vector<std::int32_t> targets(inputs.size());
    step_.batches.train(std::span(&sequence, 1), View::of(std::span(inputs)),
                        View::of(std::span(targets)));
    const std::vector<std::uint32_t> tokens(inputs.begin(), inputs.end());
    if (count_ > 0 && tokens.front() != last_target_) ++others_;
    writer_.write(tokens);
    last_target_ = static_cast<std::uint32_t>(targets.back());
    const auto [file, token] = step_.batches.train_stream().place_of(sequence * length_);
    return {{"row", count_++}, {"sequence", sequence}, {"file", file.path()}, {"token", token}};
  }

  const NonfiniteStep& step_;
  std::int64_t length_;
  std::int64_t token_bytes_;
  TokenFileWriter writer_;
  std::int64_t most_;
  std::int64_t count_ = 0;
  std::int64_t others_ = 0;
  std::uint32_t last_target_ = 0;
};

/// DIR; empty: there is none.
std::string folder_of_run(const TrainConfig& config) {
  if (!config.checkpoints.folder.empty()) return config.checkpoints.folder;
  if (config.run.log.empty()) return "";
  const std::string log = files::behind_links(config.run.log);
  return files::disk().kind_of(log) == files::PathKind::file ? files::folder_of(log) : "";
}

int saved_before(const std::string& folder) {
  const std::vector<std::string> names = files::disk().list(folder);
  return static_cast<int>(
      std::ranges::count_if(names, [](const auto& name) { return name.starts_with(kName); }));
}

Json configuration(const TrainConfig& config) {
  Json all = Json::object();
  for (const auto& [key, value] : config.values.effective()) all[key] = Json::parse(value);
  return all;
}

void write_files(const NonfiniteStep& step, const std::string& path,
                 const std::vector<std::string>& ranks) {
  const StepReport& report = step.report;
  Json json{{"step", report.step},
            {"not_finite", report.nonfinite ? Json(*report.nonfinite) : Json("gradient norm")},
            {"first_on_rank", std::max(0, report.nonfinite_rank)},
            {"loss", json_number(report.loss)},
            {"gradient_norm", json_number(report.gradient_norm)},
            {"loss_scale", step.loss_scale}};
  Json& all = json["ranks"] = Json::array();
  for (const std::string& rank : ranks) all.push_back(Json::parse(rank));
  json["data"] = Rows(step, path + "/tokens.bin").write();
  json["configuration"] = configuration(step.config);
  write_whole_file(path + "/report.json", json.dump(2) + "\n");
  files::disk().sync_folder(path);
}

std::string saved_text(const NonfiniteStep& step, const std::vector<std::string>& ranks) {
  const std::string folder = folder_of_run(step.config);
  if (folder.empty()) {
    return "its batch is not saved: give run.checkpoint.folder, or a file as run.log, for a place";
  }
  if (files::disk().kind_of(folder) == files::PathKind::missing) files::disk().make_folder(folder);
  const std::string path = fmt::format("{}/{}{}", folder, kName, step.report.step);
  if (files::disk().is_link(path) || files::disk().kind_of(path) != files::PathKind::missing) {
    return fmt::format("its batch is not saved: {} is there and stays as it is", path);
  }
  if (saved_before(folder) >= kMostNonfiniteSteps) {
    return fmt::format(
        "its batch is not saved: {} has {} folders {}N; remove those that are done with", folder,
        kMostNonfiniteSteps, kName);
  }
  files::disk().make_folder(path);
  write_files(step, path, ranks);
  return fmt::format("its batch, the batch's place in the data and the first bad values are in {}",
                     path);
}

}  // namespace

std::string save_nonfinite_step(const NonfiniteStep& step) {
  const std::vector<std::string> ranks =
      all_gather_texts(step.mesh.world(), step.device,
                       of_rank(step).dump(-1, ' ', false, Json::error_handler_t::replace),
                       "a step that was not finite");
  if (step.mesh.world().rank() != 0) return "";
  std::string line;
  try {
    line = saved_text(step, ranks);
  } catch (const std::exception& error) {
    line = fmt::format("its batch is not saved: {}", error.what());
  }
  return fmt::format("step {} was not finite: {}", step.report.step, line);
}

}  // namespace zero
