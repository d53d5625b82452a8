// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "launch/config/configuration.h"
#include "launch/plan/candidate.h"
#include "launch/plan/closed_forms.h"
#include "launch/plan/model_choice.h"
#include "launch/plan/ranking.h"
#include "launch/plan/written_config.h"

namespace zero::testing {

/// A question about a model of `text` on hosts x devices GPUs of `memory` bytes.
inline TrainingQuestion question_about(const std::string& text, int hosts, int devices,
                                       std::int64_t memory, std::int64_t sequence) {
  TrainingQuestion question{.model = model_of(text), .model_text = text, .sequence = sequence};
  question.machine = {.hosts = hosts, .devices = devices, .memory = memory, .source = "--gpus"};
  return question;
}

inline constexpr const char* kSmallModel = "layers=4,width=256,heads=8,context=256,vocabulary=5000";

/// What zero_train makes of a candidate's configuration with other keys beside it.
inline TrainConfig config_with_keys(const TrainingQuestion& question, const Candidate& candidate,
                                    const std::vector<std::string>& keys) {
  const nlohmann::json file = written_configuration(question, candidate);
  return make_train_config(Configuration::from_json(file, "the written configuration", keys),
                           question.machine.world(), question.machine.devices);
}

/// All candidates of a question, by their closed forms.
inline Ranking ranking_of(const TrainingQuestion& question) {
  ClosedForms forms(config_of(question, candidates(question).front()), question.machine);
  return rank_candidates(question, forms);
}

}  // namespace zero::testing
