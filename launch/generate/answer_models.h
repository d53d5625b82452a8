// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

namespace zero {

class AnswerRanks;
class Device;
class Drafter;
class Generator;
class InferenceModel;
struct AnswerPlan;
struct GenerateFlags;

/// What a rank of zero_generate computes with: the model that answers, what guesses for it, and the
/// generator over them.
class AnswerModels {
 public:
  struct Parts {
    const GenerateFlags& flags;
    const std::string& folder;  ///< of the model that answers
    const AnswerPlan& plan;
    AnswerRanks& ranks;
    std::optional<std::int64_t> available{};           ///< bytes that a rank can take, if known
    Device* device = nullptr;                          ///< null: one is opened
    std::function<void(const std::string& text)> say;  ///< adds no line's end
    std::function<void(std::string_view)> on_phase{};  ///< GeneratorOptions::on_phase
  };
  /// Collective; `flags` and `ranks` must outlive the object. Throws zero::Error, before any memory
  /// is taken, if the machine has not enough.
  explicit AnswerModels(const Parts& parts);
  ~AnswerModels();

  InferenceModel& model() { return *model_; }
  Generator& generator() { return *generator_; }

 private:
  std::unique_ptr<Device> device_;  // if none was given
  std::unique_ptr<InferenceModel> model_;
  std::unique_ptr<InferenceModel> draft_model_;
  std::unique_ptr<Drafter> drafter_;
  std::unique_ptr<Generator> generator_;
};

}  // namespace zero
