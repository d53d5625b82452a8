// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#include "launch/plan/written_config.h"

#include <string>

#include "architecture/family.h"
#include "launch/config/configuration.h"

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
  if (candidate.optimizer == Tier::file) {
    section["offload_optimizer"] = {{"device", "nvme"}, {"nvme_path", kFolderToName}};
  }
  return section;
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
  json mesh{{"replicate", candidate.mesh.replicate},
            {"shard", candidate.mesh.shard},
            {"tensor", candidate.mesh.tensor}};
  if (candidate.sequence_parallel()) mesh["sequence_parallel"] = true;
  json file{
      {"model", model_section_of(question.model)},
      {"data", data},
      {"train_micro_batch_size_per_gpu", candidate.micro},
      {"gradient_accumulation_steps", candidate.accumulation},
      {"zero_optimization", zero_section(candidate)},
      {"mesh", mesh},
      {"activation_checkpointing", recompute_section(candidate.recompute)},
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

}  // namespace zero
