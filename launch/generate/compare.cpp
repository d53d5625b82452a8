// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <string_view>
#include <vector>

#include "base/cgroup.h"
#include "base/error.h"
#include "inference/generator.h"
#include "inference/inference_model.h"
#include "inference/model_folder.h"
#include "inference/perplexity.h"
#include "launch/generate/generate_flags.h"
#include "launch/generate/generate_program.h"
#include "launch/generate/model_memory.h"
#include "launch/generate/prompt_encoder.h"
#include "launch/telemetry/output.h"

namespace zero {
namespace {

constexpr std::int64_t kTokens = 4096;   // of the text, at most
constexpr std::int64_t kStretch = 256;   // read at a time, at most
constexpr std::int64_t kPrompt = 16;     // of the answer whose speed is measured
constexpr std::int64_t kLogitRows = 64;  // their logits are the largest memory beside weights

/// Names as --weights and --cache-dtype take them.
struct Formats {
  std::string_view weights;
  std::string_view cache;
};
/// Those that a folder's weights can be had in.
std::vector<Formats> formats_of(const std::string& folder) {
  const std::string_view stored = name_of(stored_format(folder));
  std::vector<Formats> all{{stored, "dtype"}, {stored, "int8"}};
  if (stored != "dtype") return all;
  for (const std::string_view codes : {"int8", "nf4", "q4"}) all.push_back({codes, "dtype"});
  return all;
}

/// Tokens/s of a greedy answer behind the start of the text, after the first token.
double speed(InferenceModel& model, std::span<const std::uint32_t> text) {
  const auto prompt = text.first(static_cast<std::size_t>(kPrompt));
  Generator generator(model);
  GenerationEnd answer;
  generator.submit({.prompt = {prompt.begin(), prompt.end()},
                    .max_tokens = model.options().request_tokens - kPrompt,
                    .sampling = {}},
                   {.on_token = [](const GeneratedToken&) { return Flow::more; },
                    .on_end = [&](const GenerationEnd& end) { answer = end; }});
  while (!generator.idle()) generator.step();
  ZERO_CHECK(answer.reason != FinishReason::failed, "{}", answer.error);
  return static_cast<double>(answer.generated - 1) / (answer.total - answer.first_token);
}

}  // namespace

int compare_weights(const GenerateFlags& flags) {
  const std::string folder = find_model_folder(files::disk(), flags.model, say_line);
  const PromptEncoder encoder(folder, flags.tokenizer);
  std::vector<std::uint32_t> text = encoder.encode_file(flags.compare);
  const auto begin = encoder.tokenizer()->encode("", {.begin_of_text = true});
  const std::int64_t stretch = std::min(kStretch, encoder.context());
  ZERO_CHECK(std::ssize(text) > kPrompt && stretch > kPrompt + 1,
             "--compare {}: has {} tokens, and the model's context {}; expected more than {}",
             flags.compare, text.size(), encoder.context(), kPrompt + 1);
  const std::size_t all = text.size();
  text.resize(std::min(all, static_cast<std::size_t>(kTokens)));
  print(fmt::format(
      "{} tokens of {}{}; perplexity by stretches of {} tokens, each read without those before "
      "it\n{:<8} {:<6} {:>12} {:>11} {:>10} {:>12}\n",
      text.size(), flags.compare,
      text.size() < all ? fmt::format(", the first of its {}", all) : "", stretch, "weights",
      "cache", "bytes", "bytes/token", "tokens/s", "perplexity"));
  double first = 0;
  for (const auto& [weights, cache] : formats_of(folder)) {
    const PlannedRanks one{.threads = threads_of(flags), .device = device_kind(flags)};
    const InferenceOptions options{.dtype = dtype_from_name(flags.dtype),
                                   .weights = weight_format_from_name(weights),
                                   .cache = cache_format_from_name(cache),
                                   .request_tokens = stretch,
                                   .logit_rows = kLogitRows};
    const PlannedModel planned = plan_model(folder, options, one);
    if (one.device == DeviceKind::cpu) {
      check_memory(planned.bytes, available_memory(), folder, options, one);
    }
    const auto device = open_device(one.device, one.threads, planned.reserve);
    const auto model = open_inference_model(*device, folder, options);
    const double perplexity = score_text(*model, text, begin).perplexity();
    if (first == 0) first = perplexity;
    const auto shown = [&](std::string_view name) { return name == "dtype" ? flags.dtype : name; };
    const MemorySnapshot memory = device->ledger().snapshot();
    const std::int64_t tokens = model->cache().total_blocks() * model->cache().shape().block_tokens;
    print(fmt::format("{:<8} {:<6} {:>12} {:>11} {:>10.1f} {:>12.4f} ({:+.2f} %)\n", shown(weights),
                      shown(cache), memory.current_of(MemoryClass::parameters),
                      memory.labels.at("activations/key_value_cache") / tokens, speed(*model, text),
                      perplexity, 100 * (perplexity / first - 1)));
  }
  return 0;
}

}  // namespace zero
