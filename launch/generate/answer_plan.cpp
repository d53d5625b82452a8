// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#include "launch/generate/answer_plan.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <string_view>
#include <utility>

#include "base/checked_math.h"
#include "base/error.h"
#include "base/message_text.h"
#include "inference/model_folder.h"
#include "launch/generate/generate_flags.h"
#include "launch/plan/model_choice.h"
#include "launch/process/quantity.h"
#include "weights/hf/config.h"

namespace zero {
namespace {

bool has_weight_files(const std::string& folder) {
  const auto is_there = [&](const char* name) {
    return files::disk().kind_of(folder + "/" + name) != files::PathKind::missing;
  };
  return is_there("model.safetensors") || is_there("model.safetensors.index.json");
}

/// A choice of what "auto" leaves open.
struct WeightChoice {
  DType dtype = DType::fp32;
  WeightFormat weights = WeightFormat::plain;
  int tensor = 1;
};

class AnswerPlanner {
 public:
  explicit AnswerPlanner(const AnswerNeeds& needs)
      : needs_(needs),
        flags_(needs.flags),
        decoder_(needs.folder.empty() ? *needs.shape : read_hf_model(needs.folder).shape),
        stored_(needs.folder.empty() ? WeightFormat::plain : stored_format(needs.folder)) {
    ZERO_CHECK(!needs.requests.empty(), "a plan of no request; expected one at least");
    ZERO_CHECK(
        flags_.keep.empty() || flags_.weights == "auto" ||
            format_of(stored_) != WeightFormat::plain,
        "--keep {}: no matrix becomes codes; leave it out, or give --weights int8, nf4 or q4",
        flags_.keep.text());
    ZERO_CHECK(flags_.offload.folder.empty() || needs_.device == DeviceKind::cpu,
               "--offload-weights {}: blocks in files are read into host memory, and a GPU keeps "
               "weights in its own; give --device cpu, or leave it out: --weights nf4 takes least "
               "of a GPU",
               flags_.offload.folder);
    check_model("the model", needs_.folder, decoder_, stored_, flags_.keep);
    if (!flags_.draft.empty() && flags_.draft != "prompt") open_draft();
  }

  AnswerPlan run() {
    const bool chooses = flags_.weights == "auto" || flags_.tensor == GenerateFlags::kAutoTensor;
    limit_ = flags_.memory_limit > 0 ? flags_.memory_limit
             : chooses               ? needs_.available.value_or(0)
                                     : 0;
    ZERO_CHECK(!chooses || limit_ > 0,
               "{} auto: how much memory the device has is not known before it is opened; give "
               "--memory-limit, such as 8GiB",
               flags_.weights == "auto" ? "--weights" : "--tensor");
    AnswerPlan plan = chosen();
    size_cache(plan);
    // A run tries what is available.
    if (flags_.plan && limit_ == 0) plan.limit = limit_ = needs_.available.value_or(0);
    if (limit_ > 0 && !fits(plan)) plan.shortage = answer_shortage(plan, flags_, stored_);
    if (chooses) tell_choice(plan);
    tell_cache(plan);
    return plan;
  }

 private:
  void open_draft();
  std::vector<WeightChoice> candidates() const;
  AnswerPlan chosen();
  AnswerPlan planned(const WeightChoice& candidate) const;
  InferenceOptions options_of(const WeightChoice& candidate, const AnswerPlan& plan) const;
  std::int64_t windows_of(const AnswerPlan& plan) const;
  void give_demand(AnswerPlan& plan) const;
  void check_model(std::string_view model, const std::string& folder, const DecoderShape& decoder,
                   WeightFormat stored, MatrixRoles keep) const;
  /// What is asked for of a folder's weights: by default, and by "auto", their own format.
  WeightFormat format_of(WeightFormat stored) const {
    return flags_.weights.empty() || flags_.weights == "auto"
               ? stored
               : weight_format_from_name(flags_.weights);
  }
  bool fits(const AnswerPlan& plan) const { return plan.of_device() <= limit_; }
  /// Tokens of a cache that has so many blocks unless --cache-tokens says how many.
  std::int64_t tokens_of(std::int64_t blocks) const {
    return flags_.cache_tokens > 0 ? flags_.cache_tokens : blocks * flags_.block_tokens;
  }
  void size_cache(AnswerPlan& plan) const;
  void tell_cache(const AnswerPlan& plan) const;
  void tell_choice(const AnswerPlan& plan) const;

  const AnswerNeeds& needs_;
  const GenerateFlags& flags_;
  const DecoderShape decoder_;
  const WeightFormat stored_;
  std::string draft_folder_;
  WeightFormat draft_stored_ = WeightFormat::plain;
  DecoderShape draft_decoder_;
  std::int64_t limit_ = 0;
};

void AnswerPlanner::open_draft() {
  draft_folder_ = find_model_folder(files::disk(), flags_.draft, needs_.tell, "--draft");
  draft_decoder_ = read_hf_model(draft_folder_).shape;
  ZERO_CHECK(draft_decoder_.vocabulary == decoder_.vocabulary,
             "--draft {}: has a vocabulary of {} tokens; expected the model's {}", flags_.draft,
             draft_decoder_.vocabulary, decoder_.vocabulary);
  draft_stored_ = stored_format(draft_folder_);
  check_model("--draft", draft_folder_, draft_decoder_, draft_stored_, {});
}

void AnswerPlanner::check_model(std::string_view model, const std::string& folder,
                                const DecoderShape& decoder, WeightFormat stored,
                                MatrixRoles keep) const {
  // Before anything is as large as config.json says. Of a plan without weights, that has to do.
  if (!flags_.plan || (!folder.empty() && has_weight_files(folder))) {
    ModelFolder(folder).check_format(format_of(stored), keep);
  }
  const std::int64_t most = round_up(decoder.context, kCacheChunk);
  const std::int64_t block = flags_.block_tokens;
  ZERO_CHECK(block >= kCacheChunk && block <= most && block % kCacheChunk == 0,
             "--block-tokens {}: expected a multiple of {} up to {}: {} has a context of {} tokens",
             block, kCacheChunk, most, model, decoder.context);
  // Of codes no others are made; of a plan, without their files too.
  if (stored == WeightFormat::plain) return;
  if (needs_.device == DeviceKind::cuda) check_format_on_gpu(stored, "a GPU");
  check_stored_format(folder, format_of(stored), keep);
}

// In the order in which they are tried: better answers first, then fewer tensor ranks, whose
// answers have the bits of one rank.
std::vector<WeightChoice> AnswerPlanner::candidates() const {
  const DType dtype = dtype_from_name(flags_.dtype);
  std::vector<std::pair<DType, WeightFormat>> formats;
  if (flags_.weights != "auto" || stored_ != WeightFormat::plain) {
    formats.emplace_back(dtype, format_of(stored_));
  } else {
    const DType least = flags_.gave("--dtype") ? dtype : DType::bf16;
    formats.emplace_back(dtype, WeightFormat::plain);
    if (least != dtype) formats.emplace_back(least, WeightFormat::plain);
    for (const auto codes : {WeightFormat::int8, WeightFormat::nf4, WeightFormat::q4}) {
      formats.emplace_back(least, codes);
    }
  }
  std::vector<int> degrees{flags_.tensor};
  if (flags_.tensor == GenerateFlags::kAutoTensor) {
    degrees.clear();
    for (int tensor = 1; tensor <= needs_.world; ++tensor) {
      const int together = tensor * replicas_of(flags_, needs_.world, tensor);
      const bool divides = needs_.world % together == 0 && needs_.world % tensor == 0;
      if (divides && can_cut(decoder_, tensor)) degrees.push_back(tensor);
    }
  }
  std::vector<WeightChoice> all;
  for (const auto& [of, format] : formats) {
    for (const int tensor : degrees) all.push_back({of, format, tensor});
  }
  ZERO_CHECK(!all.empty(), "--tensor auto: {} ranks are no multiple of --replicate {}",
             needs_.world, flags_.replicate);
  return all;
}

// The first with the cache that is wanted; else the first with room for the longest request; else
// the smallest.
AnswerPlan AnswerPlanner::chosen() {
  std::vector<AnswerPlan> all;
  std::string shortage;
  for (const WeightChoice& each : candidates()) {
    AnswerPlan plan = planned(each);
    shortage = cache_shortage(plan, flags_, needs_.available.value_or(0));
    if (shortage.empty()) all.push_back(std::move(plan));
  }
  ZERO_CHECK(!all.empty(), "{}", shortage);
  if (all.size() == 1) return all.front();
  for (AnswerPlan plan : all) {
    plan_cache(plan, tokens_of(plan.demand.at_once));
    if (fits(plan)) return plan;
  }
  std::optional<AnswerPlan> smallest;
  for (AnswerPlan& plan : all) {
    plan_cache(plan, tokens_of(plan.demand.longest));
    if (fits(plan)) return plan;
    if (!smallest || plan.of_device() < smallest->of_device()) smallest = std::move(plan);
  }
  return *std::move(smallest);
}

AnswerPlan AnswerPlanner::planned(const WeightChoice& candidate) const {
  AnswerPlan plan{.decoder = decoder_, .limit = limit_};
  const int replicate = replicas_of(flags_, needs_.world, candidate.tensor);
  plan.ranks = {
      MeshShape{.replicate = replicate, .tensor = candidate.tensor}.resolved(needs_.world),
      needs_.threads, needs_.device};
  give_demand(plan);
  plan.options = options_of(candidate, plan);
  plan.options.weight_group = needs_.folder.empty() ? 0 : stored_group(needs_.folder);
  plan.draft_folder = draft_folder_;
  plan.draft_decoder = draft_decoder_;
  if (!draft_folder_.empty()) {
    plan.draft_options = plan.options;
    InferenceOptions& draft = plan.draft_options;
    const bool codes = draft_stored_ != WeightFormat::plain;
    if (codes || flags_.weights != "auto") draft.weights = format_of(draft_stored_);
    if (codes) draft.keep = {};
    draft.weight_group = stored_group(draft_folder_);
    draft.logit_rows = plan.options.requests;
    draft.request_tokens = std::min(draft.request_tokens, draft_decoder_.context);
    draft.host_tokens = 0;  // it reads again at little cost
    draft.windows = InferenceOptions().windows;
    draft.block_file = {};
  }
  return plan;
}

void AnswerPlanner::give_demand(AnswerPlan& plan) const {
  const MeshShape& shape = plan.ranks.shape;
  const auto groups = static_cast<std::size_t>(shape.data_ranks());
  for (std::size_t group = 0; group < groups; ++group) {
    std::vector<RequestLength> own;
    const bool in_turn = needs_.dealt == AnswerNeeds::Dealt::in_turn;
    for (std::size_t i = in_turn ? group : 0; i < needs_.requests.size();
         i += in_turn ? groups : 1) {
      own.push_back(needs_.requests[i]);
    }
    const CacheDemand of =
        cache_demand(own, {.slots = flags_.requests,
                           .block_tokens = flags_.block_tokens,
                           .guesses = flags_.draft.empty() ? 0 : flags_.draft_tokens});
    plan.demand.at_once = std::max(plan.demand.at_once, of.at_once);
    plan.demand.longest = std::max(plan.demand.longest, of.longest);
    plan.demand.contiguous = std::max(plan.demand.contiguous, of.contiguous);
    plan.demand.all = std::max(plan.demand.all, of.all);
    if (!in_turn) break;  // the others have the same
  }
}

InferenceOptions AnswerPlanner::options_of(const WeightChoice& candidate,
                                           const AnswerPlan& plan) const {
  const MeshShape& shape = plan.ranks.shape;
  const auto groups =
      needs_.dealt == AnswerNeeds::Dealt::in_turn ? std::int64_t{shape.replicate} * shape.shard : 1;
  std::int64_t longest = 0;
  for (const RequestLength& each : needs_.requests) longest = std::max(longest, each.tokens());
  const std::int64_t guessed = flags_.draft.empty() ? 0 : flags_.draft_tokens;
  InferenceOptions options{
      .dtype = candidate.dtype,
      .weights = candidate.weights,
      .keep = candidate.weights == WeightFormat::plain ? MatrixRoles{} : flags_.keep,
      .cache = cache_format_from_name(flags_.cache_dtype),
      .requests = std::min(flags_.requests, div_ceil(std::ssize(needs_.requests), groups)),
      .request_tokens = longest,
      .block_tokens = flags_.block_tokens,
      .host_tokens = flags_.host_cache_tokens,
      .windows = windows_of(plan),
      .block_file = flags_.offload};
  options.logit_rows = std::min(options.requests * (1 + guessed), InferenceOptions::kMostRows);
  options.rows = std::max(options.rows, options.logit_rows);
  ZERO_CHECK(flags_.cache_tokens == 0 || flags_.cache_tokens >= longest,
             "--cache-tokens is {}; expected at least {}, for the longest prompt with its answer",
             flags_.cache_tokens, longest);
  return options;
}

// Of DeepSpeed's counts of elements: a window for the block that computes, and one for each that is
// begun ahead.
std::int64_t AnswerPlanner::windows_of(const AnswerPlan& plan) const {
  const MeshShape& shape = plan.ranks.shape;
  ZERO_CHECK(flags_.windows == 0 || shape.shard > 1 || !flags_.offload.folder.empty(),
             "--windows {}: windows hold blocks whose weights ranks share, and no two of {} "
             "share any (--replicate {}, --tensor {}); leave it out",
             flags_.windows, counted(needs_.world, "rank"), shape.replicate, shape.tensor);
  if (flags_.windows > 0) return flags_.windows;
  constexpr double kMost = 64;
  const auto block = static_cast<double>(decoder_.block_matrices()) / shape.tensor;
  auto windows = static_cast<double>(InferenceOptions().windows);
  if (flags_.sharded.prefetched) windows = 1 + std::ceil(*flags_.sharded.prefetched / block);
  if (flags_.sharded.live) windows = std::min(windows, std::floor(*flags_.sharded.live / block));
  return static_cast<std::int64_t>(std::clamp(windows, 1.0, kMost));
}

void AnswerPlanner::size_cache(AnswerPlan& plan) const {
  const std::int64_t block = flags_.block_tokens;
  if (limit_ > 0 && flags_.cache_tokens == 0) {
    // With a limit of its own, the cache also keeps what may come again; there is never more than
    // all requests.
    const bool terminal = needs_.arrivals == AnswerNeeds::Arrivals::more_come;
    constexpr std::int64_t kMostTokens = std::int64_t{1} << 40;
    const std::int64_t most = flags_.memory_limit == 0 ? plan.demand.at_once
                              : terminal               ? kMostTokens / block
                                         : std::max(plan.demand.all, plan.demand.at_once);
    const auto blocks = blocks_within(limit_, plan.demand.longest, most, [&](std::int64_t count) {
      plan_cache(plan, count * block);
      return BytesOfBlocks{plan.of_device(), plan.memory.cache + plan.draft.cache};
    });
    plan_cache(plan, blocks.value_or(plan.demand.longest) * block);
  } else {
    plan_cache(plan, tokens_of(plan.demand.at_once));
  }
}

void AnswerPlanner::tell_cache(const AnswerPlan& plan) const {
  const std::int64_t block = flags_.block_tokens;
  const std::int64_t blocks = plan.memory.blocks;
  if (flags_.cache_tokens > plan.demand.at_once * block) {
    needs_.tell(fmt::format(
        "--cache-tokens {}: requests need {} at once; the rest keeps beginnings that may come "
        "again",
        flags_.cache_tokens, plan.demand.at_once * block));
  } else if (blocks >= plan.demand.at_once && blocks < plan.demand.contiguous) {
    const std::int64_t block_bytes = plan.memory.cache / blocks;
    needs_.tell(fmt::format(
        "cache: {} for requests of these lengths; {} reserved for the longest of each would take "
        "{} ({:.0f} %)",
        size_text(plan.memory.cache), plan.options.requests,
        size_text(plan.demand.contiguous * block_bytes),
        100.0 * static_cast<double>(blocks) / static_cast<double>(plan.demand.contiguous)));
  }
  if (blocks < plan.demand.at_once && plan.shortage.empty()) {
    needs_.tell(fmt::format(
        "cache: {} of the {} blocks that requests can need at once: where they need more, the last "
        "are preempted and read again later",
        blocks, plan.demand.at_once));
  }
}

void AnswerPlanner::tell_choice(const AnswerPlan& plan) const {
  std::string text;
  if (flags_.weights == "auto") {
    text = "--weights auto: " + weights_text(plan.options);
  }
  if (flags_.tensor == GenerateFlags::kAutoTensor) {
    text += fmt::format("{}--tensor auto: {}", text.empty() ? "" : ", ", plan.ranks.shape.tensor);
  }
  needs_.tell(plan.shortage.empty() ? fmt::format("{}, the first that fits {} of a rank{}", text,
                                                  size_text(limit_), left_of_gpu_text(plan, flags_))
                                    : text + ", the smallest; none fits");
}

}  // namespace

std::int64_t AnswerPlan::of_device() const {
  return memory.of_device(ranks.device) +
         (draft_folder.empty() ? 0 : draft.of_device(ranks.device));
}

AnswerPlan plan_answers(const AnswerNeeds& needs) { return AnswerPlanner(needs).run(); }

}  // namespace zero
