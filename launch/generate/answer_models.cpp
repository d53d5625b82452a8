// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#include "launch/generate/answer_models.h"

#include <fmt/format.h>

#include <algorithm>
#include <optional>

#include "architecture/decoder_shape.h"
#include "base/cgroup.h"
#include "base/error.h"
#include "inference/drafter.h"
#include "inference/generator.h"
#include "inference/inference_model.h"
#include "launch/generate/answer_ranks.h"
#include "launch/generate/generate_flags.h"
#include "launch/generate/model_memory.h"
#include "weights/hf/config.h"

namespace zero {
namespace {

// 0, as many as all requests can need, if that is no more.
std::int64_t useful_cache_tokens(std::int64_t tokens, const InferenceOptions& options) {
  return tokens < options.requests * options.request_tokens ? tokens : 0;
}

InferenceOptions options_of(const AnswerModels::Parts& parts) {
  const GenerateFlags& flags = parts.flags;
  const std::int64_t requests = parts.requests;
  const std::int64_t request_tokens = parts.request_tokens;
  const std::int64_t guessed = flags.draft.empty() ? 0 : flags.draft_tokens;
  InferenceOptions options{.dtype = dtype_from_name(flags.dtype),
                           .weights = weight_format(flags, parts.folder),
                           .cache = cache_format_from_name(flags.cache_dtype),
                           .requests = requests,
                           .request_tokens = request_tokens,
                           .host_tokens = flags.host_cache_tokens};
  options.logit_rows = std::min(requests * (1 + guessed), InferenceOptions::kMostRows);
  options.rows = std::max(options.rows, options.logit_rows);
  if (flags.cache_tokens > 0) {
    ZERO_CHECK(flags.cache_tokens >= request_tokens,
               "--cache-tokens is {}; expected at least {}, for the longest prompt with its answer",
               flags.cache_tokens, request_tokens);
    options.cache_tokens = useful_cache_tokens(flags.cache_tokens, options);
    if (flags.cache_tokens > requests * request_tokens) {
      parts.tell(fmt::format(
          "--cache-tokens {}: the cache has {}, all that {} requests of {} tokens can need",
          flags.cache_tokens, requests * request_tokens, requests, request_tokens));
    }
  }
  return options;
}

// Of a model that guesses.
InferenceOptions draft_options(const AnswerModels::Parts& parts, const InferenceOptions& options,
                               const std::string& folder) {
  const DecoderShape guessing = read_hf_model(folder).shape;
  const std::int64_t vocabulary = read_hf_model(parts.folder).shape.vocabulary;
  ZERO_CHECK(guessing.vocabulary == vocabulary,
             "--draft {}: has a vocabulary of {} tokens; expected the model's {}",
             parts.flags.draft, guessing.vocabulary, vocabulary);
  InferenceOptions draft = options;
  draft.weights = weight_format(parts.flags, folder);
  draft.logit_rows = options.requests;
  draft.request_tokens = std::min(draft.request_tokens, guessing.context);
  draft.host_tokens = 0;  // it reads again at little cost
  draft.cache_tokens = useful_cache_tokens(draft.cache_tokens, draft);
  return draft;
}

}  // namespace

AnswerModels::AnswerModels(const Parts& parts) {
  const GenerateFlags& flags = parts.flags;
  const PlannedRanks planned_ranks{parts.ranks.shape(), parts.threads, parts.device_kind};
  const InferenceOptions options = options_of(parts);
  const PlannedModel model = plan_model(parts.folder, options, planned_ranks);
  std::int64_t host_bytes = model.host_bytes;
  BytesByClass reserve = model.reserve;
  parts.say(model.line);
  const bool guesses = !flags.draft.empty() && flags.draft != "prompt";
  std::string draft_folder;
  InferenceOptions draft;
  if (guesses) {
    draft_folder = find_model_folder(files::disk(), flags.draft, parts.tell, "--draft");
    draft = draft_options(parts, options, draft_folder);
    const PlannedModel guessing =
        plan_model(draft_folder, draft, {.threads = parts.threads, .device = parts.device_kind});
    host_bytes += guessing.host_bytes;
    for (std::size_t i = 0; i < reserve.size(); ++i) reserve[i] += guessing.reserve[i];
    parts.say("draft: " + guessing.line);
  }
  std::optional<std::int64_t> available = available_memory();
  if (available) *available /= parts.ranks.on_this_host();
  check_memory(host_bytes, available, parts.folder, options, planned_ranks);
  parts.ranks.any(false);  // all have looked before one takes memory
  if (parts.device == nullptr) device_ = open_device(parts.device_kind, parts.threads, reserve);
  Device& device = parts.device == nullptr ? *device_ : *parts.device;
  model_ = open_inference_model(device, parts.folder, options, parts.ranks.mesh());
  if (guesses) {
    draft_model_ = open_inference_model(device, draft_folder, draft);
    drafter_ = std::make_unique<ModelDrafter>(*draft_model_);
  } else if (!flags.draft.empty()) {
    drafter_ = std::make_unique<NgramDrafter>();
  }
  generator_ = std::make_unique<Generator>(
      *model_, GeneratorOptions{.drafter = drafter_.get(), .draft_tokens = flags.draft_tokens});
}

AnswerModels::~AnswerModels() = default;

}  // namespace zero
