// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#include "launch/generate/sampling_choice.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <string_view>

#include "base/error.h"
#include "base/json_fields.h"
#include "base/json_tree.h"
#include "base/message_text.h"
#include "weights/model_files.h"

namespace zero {
namespace {

/// A setting of transformers' that chooses other tokens, and its value that changes nothing.
struct Unknown {
  std::string_view name;
  double neutral;
};
constexpr std::array kUnknown{Unknown{"typical_p", 1},
                              Unknown{"epsilon_cutoff", 0},
                              Unknown{"eta_cutoff", 0},
                              Unknown{"top_h", 0},
                              Unknown{"penalty_alpha", 0},
                              Unknown{"encoder_repetition_penalty", 1},
                              Unknown{"presence_penalty", 0},
                              Unknown{"frequency_penalty", 0},
                              Unknown{"num_beam_groups", 1},
                              Unknown{"diversity_penalty", 0},
                              Unknown{"no_repeat_ngram_size", 0},
                              Unknown{"encoder_no_repeat_ngram_size", 0},
                              Unknown{"num_beams", 1},
                              Unknown{"guidance_scale", 1},
                              Unknown{"min_length", 0},
                              Unknown{"min_new_tokens", 0},
                              Unknown{"bad_words_ids", 0},
                              Unknown{"suppress_tokens", 0},
                              Unknown{"begin_suppress_tokens", 0},
                              Unknown{"sequence_bias", 0},
                              Unknown{"forced_bos_token_id", -1},
                              Unknown{"forced_eos_token_id", -1},
                              Unknown{"stop_strings", 0}};

/// Those that choose no other tokens.
constexpr auto kPassedOver = std::to_array<std::string_view>(
    {// Which tokens begin and end, how caches and results are kept:
     "_from_model_config", "transformers_version", "bos_token_id", "eos_token_id", "pad_token_id",
     "decoder_start_token_id", "max_length", "use_cache", "cache_implementation", "cache_config",
     "return_legacy_cache", "output_attentions", "output_hidden_states", "output_scores",
     "output_logits", "return_dict_in_generate", "num_return_sequences", "low_memory",
     "prefill_chunk_size", "compile_config", "disable_compile", "trust_remote_code", "chat_format",
     // Of beams alone, and of drafts, which change no answer:
     "length_penalty", "early_stopping", "is_assistant", "num_assistant_tokens",
     "num_assistant_tokens_schedule", "assistant_confidence_threshold", "assistant_early_exit",
     "assistant_lookbehind", "target_lookbehind", "prompt_lookup_num_tokens",
     "max_matching_ngram_size", "renormalize_logits", "remove_invalid_values"});

/// Of the file's `tree`, in its order, what was not read of its `fields`.
std::vector<std::string> unknown_in(const nlohmann::ordered_json& tree, const JsonFields& fields) {
  std::vector<std::string> all;
  for (const auto& [name, value] : tree.items()) {
    if (fields.was_read(name) || std::ranges::count(kPassedOver, name) > 0) continue;
    const auto* const setting = std::ranges::find(kUnknown, name, &Unknown::name);
    const bool nothing = value.is_null() || value == false ||
                         (setting != kUnknown.end() && value == setting->neutral) ||
                         (value.is_structured() && value.empty());
    if (nothing) continue;
    all.push_back(fmt::format("{} {}", printable_line(name), printable_line(value.dump())));
  }
  return all;
}

}  // namespace

void SamplingChoice::apply_to(Sampling& sampling) const {
  sampling.temperature = temperature.value_or(sampling.temperature);
  sampling.top_k = top_k.value_or(sampling.top_k);
  sampling.top_p = top_p.value_or(sampling.top_p);
  sampling.min_p = min_p.value_or(sampling.min_p);
  sampling.repetition_penalty = repetition_penalty.value_or(sampling.repetition_penalty);
}

std::vector<std::string> ModelSampling::lines() const {
  std::vector<std::string> used;
  const auto use = [&](const char* name, const auto& value, auto usual) {
    if (value && *value != usual) used.push_back(fmt::format("{} {}", name, *value));
  };
  const Sampling usual;
  use("temperature", choice.temperature, usual.temperature);
  use("top_k", choice.top_k, usual.top_k);
  use("top_p", choice.top_p, usual.top_p);
  use("min_p", choice.min_p, usual.min_p);
  use("repetition_penalty", choice.repetition_penalty, usual.repetition_penalty);
  if (max_tokens) used.push_back(fmt::format("max_new_tokens {}", *max_tokens));
  std::vector<std::string> all;
  if (!used.empty()) {
    all.push_back(fmt::format("{}: {}, where no flag says otherwise", file, fmt::join(used, ", ")));
  }
  if (!unknown.empty()) {
    all.push_back(
        fmt::format("warning: {}: {} {} not known here and left out: answers may differ "
                    "from those of programs that know {}",
                    file, fmt::join(unknown, ", "), unknown.size() == 1 ? "is" : "are",
                    unknown.size() == 1 ? "it" : "them"));
  }
  return all;
}

ModelSampling read_model_sampling(const std::string& folder) {
  const std::filesystem::path path = std::filesystem::path(folder) / "generation_config.json";
  ModelSampling sampling{.file = path.string()};
  if (!std::filesystem::is_regular_file(path)) return sampling;
  const auto tree = parse_ordered_tree(read_model_text(sampling.file));
  JsonFields fields = JsonFields::of(sampling.file, tree.value_or(nullptr));
  SamplingChoice& choice = sampling.choice;
  const auto number = [&](const char* name, std::optional<double>& value) {
    if (fields.has(name)) value = fields.number(name);
  };
  number("temperature", choice.temperature);
  number("top_p", choice.top_p);
  number("min_p", choice.min_p);
  number("repetition_penalty", choice.repetition_penalty);
  if (fields.has("top_k")) choice.top_k = fields.integer("top_k");
  if (fields.has("max_new_tokens")) {
    sampling.max_tokens = fields.integer("max_new_tokens");
    ZERO_CHECK(*sampling.max_tokens >= 1, "{}: found {}, expected at least 1",
               fields.place("max_new_tokens"), *sampling.max_tokens);
  }
  if (fields.flag("do_sample", false)) {
    constexpr std::int64_t kTopK = 50;  // as transformers' GenerationConfig
    choice.temperature = choice.temperature.value_or(1);
    choice.top_k = choice.top_k.value_or(kTopK);
  } else {
    choice.temperature = 0;
  }
  sampling.unknown = unknown_in(*tree, fields);
  return sampling;
}

}  // namespace zero
