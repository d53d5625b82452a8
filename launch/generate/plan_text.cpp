// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <algorithm>

#include "base/message_text.h"
#include "launch/generate/answer_plan.h"
#include "launch/generate/generate_flags.h"
#include "launch/process/quantity.h"
#include "ops/ops.h"

namespace zero {
namespace {

constexpr const char* kCells = "{:>12} {:>12} {:>12} {:>12} {:>12} {:>12}";
constexpr const char* kFileCell = " {:>12}";

std::string memory_row(const std::string& ranks, const InferenceMemory& memory) {
  return fmt::format("{:<12} {}\n", ranks, memory_cells(memory));
}

/// A row for consecutive ranks that take the same.
std::string rank_rows(const AnswerPlan& plan) {
  constexpr int kMostRanks = 64;  // planned one by one
  const int count = plan.ranks.shape.shard * plan.ranks.shape.tensor;
  std::string rows;
  const auto add = [&](int first, int last, const InferenceMemory& memory) {
    rows += memory_row(
        first == last ? fmt::format("{}", first) : fmt::format("{} to {}", first, last), memory);
  };
  int first = 0;
  InferenceMemory memory = plan.memory;
  for (int rank = 1; rank < std::min(count, kMostRanks); ++rank) {
    const InferenceMemory own = plan_inference_memory(plan.decoder, plan.options, plan.ranks, rank);
    if (own == memory) continue;
    add(first, rank - 1, memory);
    first = rank;
    memory = own;
  }
  add(first, count - 1, memory);
  if (count > kMostRanks)
    rows += fmt::format("(ranks from {} on as rank {})\n", kMostRanks, kMostRanks - 1);
  return rows;
}

/// The requests that fit the limit at once with activations and cache of a type.
std::int64_t requests_in(DType dtype, AnswerPlan plan) {
  plan.options.dtype = plan.draft_options.dtype = dtype;
  std::int64_t bytes = plan.limit;
  if (!plan.draft_folder.empty()) {
    const PlannedRanks whole{.threads = plan.ranks.threads, .device = plan.ranks.device};
    bytes -= plan_inference_memory(plan.draft_decoder, plan.draft_options, whole)
                 .of_device(whole.device);
  }
  return requests_within(plan.decoder, plan.options, plan.ranks, bytes);
}

/// What is left of the limit, and what it would hold.
std::string room_text(const AnswerPlan& plan, const GenerateFlags& flags) {
  const InferenceMemory& memory = plan.memory;
  const std::int64_t left = plan.limit - plan.of_device();
  const std::int64_t tokens =
      (memory.blocks + left / (memory.cache / memory.blocks)) * memory.block_tokens;
  const std::int64_t requests = requests_in(plan.options.dtype, plan);
  std::string text = fmt::format(
      "fits {}{}, of which {} are left: a cache of {} tokens, or {} of {} tokens at once "
      "on a rank or its tensor group\n",
      size_text(plan.limit),
      flags.memory_limit > 0                  ? ""
      : plan.ranks.device == DeviceKind::cuda ? left_of_gpu_text(plan, flags)
                                              : " (free memory of this host for a rank)",
      size_text(left), tokens, counted(requests, "request"), memory.longest);
  if (plan.options.dtype != DType::fp32 || flags.gave("--dtype")) return text;
  const std::int64_t more = requests_in(DType::bf16, plan);
  if (more > requests)
    text += fmt::format("--dtype bf16 would hold {}\n", counted(more, "request"));
  return text;
}

}  // namespace

std::string left_of_gpu_text(const AnswerPlan& plan, const GenerateFlags& flags) {
  if (flags.memory_limit > 0 || plan.ranks.device == DeviceKind::cpu) return "";
  return fmt::format(" (free on the GPU; {} more are left to CUDA's libraries, kernels and graphs)",
                     size_text(cuda::kLeftToLibraries));
}

std::string weights_text(const InferenceOptions& options) {
  if (options.weights == WeightFormat::plain) return std::string(name_of(options.dtype));
  std::string text = fmt::format("{} beside {}", name_of(options.weights), name_of(options.dtype));
  if (!options.keep.empty())
    text += fmt::format(" ({} in {})", options.keep.text(), name_of(options.dtype));
  return text;
}

std::string memory_header(const InferenceMemory& memory) {
  return fmt::format(kCells, "weights", "windows", "cache", "activations", "exchange", "total") +
         (memory.file > 0 ? fmt::format(kFileCell, "file") : "");
}

std::string memory_cells(const InferenceMemory& memory) {
  return fmt::format(kCells, size_text(memory.weights), size_text(memory.windows),
                     size_text(memory.cache + memory.host_cache), size_text(memory.activations),
                     size_text(memory.exchange), size_text(memory.total())) +
         (memory.file > 0 ? fmt::format(kFileCell, size_text(memory.file)) : "");
}

std::string plan_text(const AnswerPlan& plan, const GenerateFlags& flags) {
  const InferenceMemory& memory = plan.memory;
  const bool gpu = plan.ranks.device == DeviceKind::cuda;
  std::string text = fmt::format(
      "model of {} parameters in {}; {} of at most {} tokens at once; ranks {} "
      "(replicate x shard x tensor), each of a {}\n{:<12} {}\n",
      count_text(static_cast<double>(plan.decoder.parameter_count())), weights_text(plan.options),
      counted(plan.options.requests, "request"), memory.longest, plan.ranks.shape.text(),
      gpu ? "GPU" : "CPU", "rank", memory_header(memory));
  text += rank_rows(plan);
  if (!plan.draft_folder.empty()) text += memory_row("draft", plan.draft);
  if (memory.file > 0) {
    text += fmt::format(
        "file: a rank's part of the blocks, in {}, beside memory; each pass reads it once\n",
        flags.offload.folder);
  }
  text += fmt::format(
      "cache: {} of {} tokens, {:.0f} % of the {} that {} of the longest would reserve\n",
      counted(memory.blocks, "block"), memory.block_tokens,
      100.0 * static_cast<double>(memory.blocks) / static_cast<double>(plan.demand.contiguous),
      plan.demand.contiguous, plan.options.requests);
  if (gpu) {
    text += fmt::format(
        "left out: what CUDA's context, its libraries, kernels and graphs take, {}; {}\n",
        size_text(cuda::kLeftToLibraries),
        flags.memory_limit > 0 ? "leave that much of the GPU out of --memory-limit"
                               : "kept out of what is free");
    if (!has_gpu_ops()) text += "the scratch of operations is a CPU's: this build has no CUDA\n";
  }
  if (!plan.shortage.empty()) return text + "does not fit: " + plan.shortage + "\n";
  if (plan.limit > 0) return text + room_text(plan, flags);
  return text + "whether it fits is not known; --memory-limit 8GiB compares\n";
}

}  // namespace zero
