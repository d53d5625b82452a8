// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#include "model/recompute.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "base/error.h"
#include "device/device.h"
#include "partition/tensor_slice.h"

namespace zero {
namespace {

bool BlockRecompute::*member_of(BlockTensor tensor) {
  switch (tensor) {
    case BlockTensor::qkv:
      return &BlockRecompute::qkv;
    case BlockTensor::attended:
      return &BlockRecompute::attended;
    case BlockTensor::middle:
      return &BlockRecompute::middle;
    case BlockTensor::hidden:
      break;
  }
  return &BlockRecompute::hidden;
}

/// "qkv, attended", "whole" or "nothing", for a block alone.
std::string text_of(const BlockRecompute& block) {
  if (block.whole()) return "whole";
  std::vector<std::string_view> names;
  for (const BlockTensor tensor : kBlockTensors) {
    if (block.has(tensor)) names.push_back(name_of(tensor));
  }
  return names.empty() ? "nothing" : fmt::format("{}", fmt::join(names, ", "));
}

}  // namespace

std::string_view name_of(BlockTensor tensor) {
  switch (tensor) {
    case BlockTensor::qkv:
      return "qkv";
    case BlockTensor::attended:
      return "attended";
    case BlockTensor::middle:
      return "middle";
    case BlockTensor::hidden:
      return "hidden";
  }
  return "?";
}

bool BlockRecompute::has(BlockTensor tensor) const { return this->*member_of(tensor); }

void BlockRecompute::set(BlockTensor tensor) { this->*member_of(tensor) = true; }

RecomputePlan RecomputePlan::on(const Device& device) const {
  RecomputePlan plan = *this;
  plan.inputs_on_host = inputs_on_host && device.memory() == MemorySpace::device;
  if (outputs != BlockOutputs::of_device) return plan;
  const bool gpu = device.piece_sizes().logit_rows >= kGpuPieces.logit_rows;
  plan.outputs = gpu ? BlockOutputs::kept : BlockOutputs::again;
  return plan;
}

RecomputePlan RecomputePlan::full(std::int64_t layers, std::int64_t interval) {
  ZERO_CHECK(interval >= 1, "recompute of every {}-th block, expected 1 or more", interval);
  RecomputePlan plan;
  plan.blocks.resize(static_cast<std::size_t>(layers));
  for (std::int64_t i = 0; i < layers; i += interval) {
    plan.blocks[static_cast<std::size_t>(i)] = BlockRecompute::all();
  }
  return plan;
}

RecomputePlan RecomputePlan::grouped(std::int64_t layers, std::int64_t groups) {
  ZERO_CHECK(groups >= 1 && groups <= layers, "{} groups of {} blocks, expected 1 to {} groups",
             groups, layers, layers);
  RecomputePlan plan = full(layers);
  for (BlockRecompute& block : plan.blocks) block.input = true;
  for (int group = 0; group < static_cast<int>(groups); ++group) {
    const std::int64_t first = even_range(layers, group, static_cast<int>(groups)).begin;
    plan.blocks[static_cast<std::size_t>(first)].input = false;
  }
  return plan;
}

RecomputePlan RecomputePlan::selective(std::int64_t layers,
                                       const std::vector<BlockTensor>& tensors) {
  BlockRecompute block;
  for (const BlockTensor tensor : tensors) block.set(tensor);
  RecomputePlan plan;
  plan.blocks.assign(static_cast<std::size_t>(layers), block);
  return plan;
}

void RecomputePlan::check(std::int64_t layers) const {
  ZERO_CHECK(blocks.empty() || blocks.size() == static_cast<std::size_t>(layers),
             "the recompute plan is of {} blocks, the model has {}", blocks.size(), layers);
  for (std::int64_t i = 0; i < static_cast<std::int64_t>(blocks.size()); ++i) {
    ZERO_CHECK(!block(i).middle || block(i).whole(),
               "the recompute plan has block {} compute middle again, but not all else", i);
    ZERO_CHECK(!block(i).input || (i > 0 && block(i).whole() && block(i - 1).whole()),
               "the recompute plan does not keep the input of block {}: that block and the one "
               "before must be computed again whole",
               i);
  }
}

std::int64_t RecomputePlan::first_of_group(std::int64_t i) const {
  while (block(i).input) --i;
  return i;
}

std::int64_t RecomputePlan::last_of_group(std::int64_t i) const {
  while (i + 1 < static_cast<std::int64_t>(blocks.size()) && block(i + 1).input) ++i;
  return i;
}

bool RecomputePlan::any() const {
  return std::ranges::any_of(blocks, [](const BlockRecompute& block) { return block.any(); });
}

std::string RecomputePlan::text() const {
  if (!any()) return "nothing";
  std::vector<std::string> ranges;
  const auto count = static_cast<std::int64_t>(blocks.size());
  for (std::int64_t begin = 0, end = 0; begin < count; begin = end) {
    end = last_of_group(begin) + 1;
    const bool alone = end == begin + 1;
    const auto like = [&](std::int64_t i) {
      return last_of_group(i) == i && block(i) == block(begin);
    };
    while (alone && end < count && like(end)) ++end;
    const std::string what =
        alone ? text_of(block(begin)) : fmt::format("whole, from the input of block {}", begin);
    ranges.push_back(end == begin + 1 ? fmt::format("block {}: {}", begin, what)
                                      : fmt::format("blocks {} to {}: {}", begin, end - 1, what));
  }
  return fmt::format("{}", fmt::join(ranges, "; "));
}

}  // namespace zero
