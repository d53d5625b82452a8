// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <algorithm>

#include "launch/generate/answer_plan.h"
#include "launch/telemetry/output.h"

namespace zero {
namespace {

std::string column_bytes(std::int64_t bytes) { return bytes_text(static_cast<double>(bytes)); }

std::string memory_row(const std::string& ranks, const InferenceMemory& memory) {
  return fmt::format("{:<12} {:>12} {:>12} {:>12} {:>12} {:>12} {:>12}\n", ranks,
                     column_bytes(memory.weights), column_bytes(memory.windows),
                     column_bytes(memory.cache + memory.host_cache),
                     column_bytes(memory.activations), column_bytes(memory.exchange),
                     column_bytes(memory.total()));
}

/// A row for consecutive ranks that take the same.
std::string rank_rows(const AnswerPlan& plan) {
  constexpr int kMostRanks = 64;  // planned one by one
  const MeshShape& shape = plan.ranks.shape;
  const int count = shape.shard * shape.tensor;
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

std::string weights_in(const InferenceOptions& options) {
  if (options.weights == WeightFormat::plain) return std::string(name_of(options.dtype));
  std::string text = fmt::format("{} beside {}", name_of(options.weights), name_of(options.dtype));
  if (!options.keep.empty())
    text += fmt::format(" ({} in {})", options.keep.text(), name_of(options.dtype));
  return text;
}

/// What is left of `bytes`, and what it would hold.
std::string room_text(const AnswerPlan& plan, std::int64_t bytes) {
  const std::int64_t left = bytes - plan.of_device();
  if (left < 0) {
    return fmt::format("does not fit {}: short by {}\n", column_bytes(bytes), column_bytes(-left));
  }
  const InferenceMemory& memory = plan.memory;
  const std::int64_t draft = plan.of_device() - memory.of_device(plan.ranks.device);
  const std::int64_t tokens =
      (memory.blocks + left / (memory.cache / memory.blocks)) * memory.block_tokens;
  return fmt::format(
      "fits {}, of which {} are left: a cache of {} tokens, or {} requests of {} tokens at once on "
      "a rank or its tensor group\n",
      column_bytes(bytes), column_bytes(left), tokens,
      requests_within(plan.decoder, plan.options, plan.ranks, bytes - draft), memory.longest);
}

}  // namespace

std::string plan_text(const AnswerPlan& plan, std::optional<std::int64_t> available) {
  const InferenceMemory& memory = plan.memory;
  const MeshShape& shape = plan.ranks.shape;
  std::string text = fmt::format(
      "model of {} parameters in {}; {} requests of at most {} tokens at once; ranks {} x {} x {} "
      "(replicate x shard x tensor)\n{:<12} {:>12} {:>12} {:>12} {:>12} {:>12} {:>12}\n",
      count_text(static_cast<double>(plan.decoder.parameter_count())), weights_in(plan.options),
      plan.options.requests, memory.longest, shape.replicate, shape.shard, shape.tensor, "rank",
      "weights", "windows", "cache", "activations", "exchange", "total");
  text += rank_rows(plan);
  if (!plan.draft_folder.empty()) text += memory_row("draft", plan.draft);
  text += fmt::format(
      "cache: {} blocks of {} tokens, {:.0f} % of the {} that {} of the longest would reserve\n",
      memory.blocks, memory.block_tokens,
      100.0 * static_cast<double>(memory.blocks) / static_cast<double>(plan.demand.contiguous),
      plan.demand.contiguous, plan.options.requests);
  if (!plan.shortage.empty()) return text + "does not fit: " + plan.shortage + "\n";
  if (plan.limit > 0) return text + room_text(plan, plan.limit);
  if (available) return text + room_text(plan, *available);
  return text + "whether it fits is not known; --memory-limit 8GiB compares\n";
}

}  // namespace zero
