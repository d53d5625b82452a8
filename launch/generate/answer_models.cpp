// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#include "launch/generate/answer_models.h"

#include <fmt/format.h>

#include "files/file_system.h"
#include "inference/drafter.h"
#include "inference/generator.h"
#include "inference/inference_model.h"
#include "launch/generate/answer_plan.h"
#include "launch/generate/answer_ranks.h"
#include "launch/generate/generate_flags.h"
#include "launch/generate/model_memory.h"
#include "launch/generate/offload_text.h"

namespace zero {

AnswerModels::AnswerModels(const Parts& parts) {
  const GenerateFlags& flags = parts.flags;
  const AnswerPlan& plan = parts.plan;
  const PlannedModel model = planned_model(plan.decoder, plan.memory, plan.ranks);
  std::int64_t host_bytes = model.host_bytes;
  BytesByClass reserve = model.reserve;
  parts.say(model.line);
  const bool guesses = !plan.draft_folder.empty();
  if (guesses) {
    const PlannedModel guessing =
        planned_model(plan.draft_decoder, plan.draft,
                      {.threads = plan.ranks.threads, .device = plan.ranks.device});
    host_bytes += guessing.host_bytes;
    for (std::size_t i = 0; i < reserve.size(); ++i) reserve[i] += guessing.reserve[i];
    parts.say("draft: " + guessing.line);
  }
  check_memory(host_bytes, parts.available, parts.folder, plan.options, plan.ranks);
  const bool offloads = !flags.offload.folder.empty();
  if (offloads) {
    for (const std::string& warning :
         parts.ranks.agree_on_room(offload_place(flags), {host_bytes, plan.memory.file})) {
      parts.say("warning: " + warning + "\n");
    }
  }
  parts.ranks.any(false);  // all have looked before one takes memory
  if (parts.device == nullptr) {
    device_ = open_device(plan.ranks.device, plan.ranks.threads, reserve);
  }
  Device& device = parts.device == nullptr ? *device_ : *parts.device;
  model_ = open_inference_model(device, parts.folder, plan.options, parts.ranks.mesh());
  if (offloads) {
    parts.say(fmt::format("blocks of weights{} are in a file in {} through {}\n",
                          parts.ranks.count() > 1 ? ", a part of each rank," : "",
                          flags.offload.folder, files::disk().io_description()));
  }
  if (guesses) {
    draft_model_ = open_inference_model(device, plan.draft_folder, plan.draft_options);
    drafter_ = std::make_unique<ModelDrafter>(*draft_model_);
  } else if (!flags.draft.empty()) {
    drafter_ = std::make_unique<NgramDrafter>();
  }
  generator_ =
      std::make_unique<Generator>(*model_, GeneratorOptions{.drafter = drafter_.get(),
                                                            .draft_tokens = flags.draft_tokens,
                                                            .on_phase = parts.on_phase});
}

AnswerModels::~AnswerModels() = default;

}  // namespace zero
