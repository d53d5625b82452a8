// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#include "launch/plan/written_config.h"

#include <fmt/format.h>

#include <filesystem>
#include <system_error>

#include "architecture/family.h"
#include "base/error.h"
#include "files/file_system.h"
#include "launch/config/configuration.h"
#include "launch/config/train_config.h"
#include "launch/data/new_file.h"
#include "launch/train/plan.h"

namespace zero {
namespace {

nlohmann::ordered_json recompute_section(const RecomputeChoice& recompute) {
  switch (recompute.kind) {
    case RecomputeChoice::Kind::none:
      break;
    case RecomputeChoice::Kind::selective:
      return {{"recompute", "selective"}};
    case RecomputeChoice::Kind::interval:
      return {{"recompute", "full"}, {"interval", recompute.count}};
    case RecomputeChoice::Kind::groups:
      return {{"recompute", "full"}, {"number_checkpoints", recompute.count}};
  }
  return {{"recompute", "none"}};
}

nlohmann::ordered_json zero_section(const Candidate& candidate) {
  nlohmann::ordered_json section{{"stage", candidate.stage}};
  const auto put = [&](const char* name, Tier tier) {
    if (tier == Tier::host) section[name] = {{"device", "cpu"}};
    if (tier == Tier::file) section[name] = {{"device", "nvme"}, {"nvme_path", kFolderToName}};
  };
  put("offload_optimizer", candidate.offload.optimizer);
  put("offload_param", candidate.offload.parameters);
  return section;
}

nlohmann::ordered_json activation_section(const Candidate& candidate) {
  nlohmann::ordered_json section = recompute_section(candidate.recompute);
  if (candidate.kept_inputs == KeptInputPlace::host) section["cpu_checkpointing"] = true;
  return section;
}

/// The name of the file of that number, counted from 0: run.json, run-2.json, ...
std::string numbered_path(const std::string& path, std::size_t number) {
  if (number == 0) return path;
  const std::filesystem::path whole(path);
  const std::string name =
      fmt::format("{}-{}{}", whole.stem().string(), number + 1, whole.extension().string());
  return (whole.parent_path() / name).string();
}

}  // namespace

nlohmann::json model_section_of(const DecoderShape& model) {
  nlohmann::json section = model.family->to_section(model);
  section["family"] = std::string(model.family->name);
  return section;
}

nlohmann::ordered_json written_configuration(const TrainingQuestion& question,
                                             const Candidate& candidate) {
  using json = nlohmann::ordered_json;
  json data{{"train", question.data}, {"sequence_length", question.sequence}};
  if (question.data.empty()) data["train"] = json::array({kDataToName});
  json mesh = mesh_json(candidate.mesh);
  if (candidate.sequence_parallel()) mesh["sequence_parallel"] = true;
  json file{
      {"model", model_section_of(question.model)},
      {"data", data},
      {"train_micro_batch_size_per_gpu", candidate.micro},
      {"gradient_accumulation_steps", candidate.accumulation},
      {"zero_optimization", zero_section(candidate)},
      {"mesh", mesh},
      {"activation_checkpointing", activation_section(candidate)},
      {"optimizer", {{"type", "AdamW"}, {"params", {{"moments", name_of(candidate.moments)}}}}}};
  if (candidate.compute != DType::fp32) file[name_of(candidate.compute)] = {{"enabled", true}};
  file["run"] = {{"device", question.machine.kind == DeviceKind::cuda ? "cuda" : "cpu"},
                 {"memory_limit", question.machine.budget()}};
  return file;
}

TrainConfig config_of(const TrainingQuestion& question, const Candidate& candidate) {
  const nlohmann::json file = written_configuration(question, candidate);
  return make_train_config(Configuration::from_json(file, "the planned configuration", {}),
                           question.machine.world(), question.machine.devices);
}

void check_written(const std::string& path, std::size_t count) {
  ZERO_CHECK(std::filesystem::path(path).has_filename(),
             "--write: found \"{}\", expected the name of a file, such as run.json", path);
  for (std::size_t i = 0; i < count; ++i) {
    const std::string name = numbered_path(path, i);
    std::error_code error;
    // Links whose target is missing are there too.
    ZERO_CHECK(!std::filesystem::exists(std::filesystem::symlink_status(name, error)),
               "--write: {} exists; give another name, or remove that file", name);
    try {
      files::check_target(files::disk(), name);
    } catch (const Error& why) {
      fail("--write: {} cannot be written: {}", name, why.what());
    }
  }
}

std::vector<std::string> write_configurations(const TrainingQuestion& question,
                                              const std::vector<Candidate>& candidates,
                                              const std::string& path) {
  check_written(path, candidates.size());
  std::vector<std::string> names;
  try {
    for (const Candidate& each : candidates) {
      names.push_back(numbered_path(path, names.size()));
      write_whole_file(names.back(), written_configuration(question, each).dump(2) + "\n");
    }
  } catch (const Error& error) {
    std::error_code ignored;
    for (const std::string& name : names) std::filesystem::remove(name, ignored);
    fail("--write: {} cannot be written: {}", names.back(), error.what());
  }
  return names;
}

}  // namespace zero
