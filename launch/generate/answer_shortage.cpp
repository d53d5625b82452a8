// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <limits>
#include <vector>

#include "architecture/decoder_shape.h"
#include "base/checked_math.h"
#include "inference/key_value_cache.h"
#include "launch/generate/answer_plan.h"
#include "launch/generate/generate_flags.h"
#include "launch/process/quantity.h"

namespace zero {
namespace {

/// Whether a saving counts beside a shortage: a twentieth of it.
bool counts(std::int64_t saved, std::int64_t missing) {
  constexpr std::int64_t kPart = 20;
  return saved > 0 && saved >= missing / kPart;
}

/// What a rank takes, by kinds.
std::string parts_text(const AnswerPlan& plan) {
  const InferenceMemory& memory = plan.memory;
  const bool host = plan.ranks.device == DeviceKind::cpu && memory.host_cache > 0;
  return fmt::format("weights {}, cache of {} tokens {}{}, the rest {}{}",
                     size_text(memory.weights + memory.windows),
                     memory.blocks * memory.block_tokens, size_text(memory.cache),
                     host ? fmt::format(", host cache of {} tokens {}", plan.options.host_tokens,
                                        size_text(memory.host_cache))
                          : "",
                     size_text(memory.activations + memory.exchange),
                     plan.draft_folder.empty()
                         ? ""
                         : fmt::format(", the draft {}", size_text(plan.draft.total())));
}

}  // namespace

std::string cache_shortage(const AnswerPlan& plan, const GenerateFlags& flags,
                           std::int64_t available) {
  InferenceOptions options = plan.options;
  options.cache_tokens = flags.cache_tokens;
  const DecoderShape decoder = DecoderSplit::of(plan.decoder, 0, plan.ranks.shape.tensor).local;
  const KeyValueCache::Size size = cache_size(options, decoder);
  const std::int64_t block = checked_mul(size.layers, size.shape.block_bytes());
  const std::int64_t limit = plan.limit > 0  ? plan.limit
                             : available > 0 ? available
                                             : std::numeric_limits<std::int64_t>::max();
  const auto lack = [&](const char* flag, std::int64_t tokens, std::int64_t blocks) {
    if (blocks <= limit / block) return std::string();
    return fmt::format("{} {}: takes {} of a rank, {} B a token; expected at most {}, {}", flag,
                       tokens, bytes_text(static_cast<double>(blocks) * static_cast<double>(block)),
                       block / options.block_tokens, size_text(limit),
                       flags.memory_limit > 0 ? "--memory-limit" : "the free memory");
  };
  std::string text = lack("--cache-tokens", flags.cache_tokens, size.blocks);
  if (text.empty() && plan.ranks.device == DeviceKind::cpu) {
    text = lack("--host-cache-tokens", flags.host_cache_tokens, size.host_blocks);
  }
  return text;
}

void plan_cache(AnswerPlan& plan, std::int64_t tokens) {
  plan.options.cache_tokens = tokens;
  plan.memory = plan_inference_memory(plan.decoder, plan.options, plan.ranks);
  if (plan.draft_folder.empty()) return;
  InferenceOptions& draft = plan.draft_options;
  const std::int64_t most = draft.requests * round_up(draft.request_tokens, draft.block_tokens);
  draft.cache_tokens = std::min(tokens, most);
  plan.draft = plan_inference_memory(plan.draft_decoder, draft,
                                     {.threads = plan.ranks.threads, .device = plan.ranks.device});
}

std::string answer_shortage(const AnswerPlan& plan, const GenerateFlags& flags,
                            WeightFormat stored) {
  const std::int64_t missing = plan.of_device() - plan.limit;
  std::vector<std::string> help;
  const auto add = [&](const std::string& what, const auto& change) {
    AnswerPlan with = plan;
    change(with);
    plan_cache(with, with.options.cache_tokens);
    if (!counts(plan.of_device() - with.of_device(), missing)) return;
    help.push_back(fmt::format("{}: {}{}", what, size_text(with.of_device()),
                               with.of_device() <= plan.limit ? ", which fits" : ""));
  };
  if (plan.options.host_tokens > 0) {
    add("no --host-cache-tokens", [](AnswerPlan& with) { with.options.host_tokens = 0; });
  }
  if (stored == WeightFormat::plain && plan.options.weights == WeightFormat::plain) {
    for (const auto codes : {WeightFormat::int8, WeightFormat::nf4}) {
      add(fmt::format("--weights {}", name_of(codes)),
          [codes](AnswerPlan& with) { with.options.weights = codes; });
    }
  }
  if (plan.options.dtype == DType::fp32) {
    add("--dtype bf16",
        [](AnswerPlan& with) { with.options.dtype = with.draft_options.dtype = DType::bf16; });
  }
  if (plan.options.cache == CacheFormat::plain) {
    add("--cache-dtype int8", [](AnswerPlan& with) {
      with.options.cache = with.draft_options.cache = CacheFormat::int8;
    });
  }
  if (plan.ranks.device == DeviceKind::cpu && plan.options.block_file.folder.empty()) {
    add("--offload-weights FOLDER, on a disk",
        [](AnswerPlan& with) { with.options.block_file.folder = "FOLDER"; });
  }
  const InferenceMemory& memory = plan.memory;
  if (counts(memory.weights, missing)) {
    help.emplace_back("more ranks (--local-ranks, mpirun), which share weights");
  }
  if (counts(memory.cache + memory.activations, missing)) {
    help.emplace_back(flags.cache_tokens > 0 ? "fewer --cache-tokens"
                                             : "shorter prompts, fewer --max-tokens or --requests");
  }
  if (!plan.draft_folder.empty() && counts(plan.draft.total(), missing)) {
    help.emplace_back("no --draft");
  }
  return fmt::format("{} {}{}: a rank takes {} ({}): short by {}{}{}",
                     flags.memory_limit > 0 ? "--memory-limit" : "free memory",
                     size_text(plan.limit), left_of_gpu_text(plan, flags),
                     size_text(plan.of_device()), parts_text(plan), size_text(missing),
                     help.empty() ? "" : ". What would help: ", fmt::join(help, "; "));
}

}  // namespace zero
