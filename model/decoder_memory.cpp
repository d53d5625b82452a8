// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#include "model/decoder_memory.h"

#include <fmt/format.h>

#include <string>

#include "base/checked_math.h"
#include "model/unit_listener.h"
#include "model/vocabulary_parallel.h"
#include "partition/tensor_slice.h"

namespace zero {
namespace {

constexpr std::int64_t kAlignment = 64;

// A layer norm has two figures per row and two parameters; an RMS norm one of each.
std::int64_t of_norm(const DecoderShape& decoder, std::int64_t count) {
  return decoder.norm == NormKind::layer ? 2 * count : count;
}

std::int64_t head_gradients_of(const DecoderShape& decoder, const DecoderRows& rows) {
  return decoder.head_norms && rows.ranks > 1 ? 2 * decoder.head_width : 0;
}

std::int64_t padded_bytes(std::int64_t count, DType dtype) {
  return round_up(checked_mul(count, size_of(dtype)), kAlignment);
}

std::string blocks_text(std::string_view name, const BlockRun& run) {
  return run.count == 1
             ? fmt::format("{} of block {}", name, run.first)
             : fmt::format("{} of blocks {} to {}", name, run.first, run.first + run.count - 1);
}

std::string window_text(std::int64_t window) {
  return fmt::format("kept inputs, window {}", window);
}

/// What of the blocks' tensors lies in a window, if their input does.
bool is_kept_input(std::size_t tensor, const BlockRun& run) {
  return static_cast<BlockActivation>(tensor) ==
         (run.partitioned ? BlockActivation::x_share : BlockActivation::x);
}

std::string within_text(std::string_view name, std::size_t within) {
  constexpr std::array<std::string_view, kWithins> kOf{"", " of the head", " of the MLP's backward",
                                                       " of attention's backward"};
  return fmt::format("{}{}", name, kOf[within]);
}

}  // namespace

DecoderMemory::DecoderMemory(const DecoderShape& decoder, const DecoderRows& rows, DType dtype,
                             const RecomputePlan& plan)
    : plan_(plan),
      windows_(plan, decoder.layers),
      partitions_(plan.partition_inputs && rows.ranks > 1 && !rows.sequence_parallel),
      gathers_(rows.sequence_parallel),
      branch_norms_(decoder.branch_norms),
      gated_(decoder.gated()),
      places_(kAlignment) {
  for (std::int64_t i = 0; i < decoder.layers; ++i) {
    turns_locally_.push_back(decoder.turns_locally(i));
  }
  const auto lives = ActivationLifetimes::of(decoder, rows, plan);
  const OfBlock<Slot> of_block = block_tensors(decoder, rows, dtype, plan);
  const OfShared<Slot> of_all = shared_tensors(decoder, rows, dtype);
  head_ = lives.head;
  for (std::size_t r = 0; r < lives.runs.size(); ++r) {
    const BlockRun& run = lives.runs[r];
    for (std::size_t t = 0; t < kBlockActivations; ++t) {
      const Slot& tensor = of_block[t];
      if (tensor.count == 0 || lives.blocks[r][t].empty()) continue;
      if (windows_.has(run.first) && is_kept_input(t, run)) continue;
      const std::int64_t places = run.shares(static_cast<BlockActivation>(t)) ? 1 : run.count;
      places_.add(blocks_text(tensor.name, run),
                  checked_mul(places, padded_bytes(tensor.count, tensor.dtype)),
                  lives.blocks[r][t]);
    }
  }
  for (std::size_t t = 0; t < kSharedActivations; ++t) {
    for (std::size_t w = 0; w < kWithins; ++w) {
      if (of_all[t].count == 0 || lives.shared[t][w].empty()) continue;
      places_.add(within_text(of_all[t].name, w), padded_bytes(of_all[t].count, of_all[t].dtype),
                  lives.shared[t][w]);
    }
  }
  place_windows(lives, of_block);
  places_.place();
  place_blocks(lives, of_block);
  place_shared(lives, of_all);
  const std::int64_t heads = head_gradients_of(decoder, rows);
  if (heads == 0) return;
  head_gradients_ = shared_[static_cast<std::size_t>(SharedActivation::norm_gradients)].front();
  head_gradients_.offset += (head_gradients_.count - heads) * size_of(DType::fp32);
  head_gradients_.count = heads;
  head_gradients_.name = "head_gradients";
}

/// Windows live throughout, so the inputs that are in them at the end of forward stay there.
void DecoderMemory::place_windows(const ActivationLifetimes& lives, const OfBlock<Slot>& tensors) {
  const BlockActivation kept = partitions_ ? BlockActivation::x_share : BlockActivation::x;
  const Slot& tensor = tensors[static_cast<std::size_t>(kept)];
  kept_input_count_ = tensor.count;
  for (std::int64_t window = 0; window < windows_.windows(); ++window) {
    places_.add(window_text(window), padded_bytes(tensor.count, tensor.dtype), {{0, lives.last}});
  }
}

void DecoderMemory::place_blocks(const ActivationLifetimes& lives, const OfBlock<Slot>& tensors) {
  for (std::size_t r = 0; r < lives.runs.size(); ++r) {
    const BlockRun& run = lives.runs[r];
    for (std::size_t t = 0; t < kBlockActivations; ++t) {
      Slot slot;
      const bool lives_here = tensors[t].count > 0 && !lives.blocks[r][t].empty();
      const bool in_windows = lives_here && windows_.has(run.first) && is_kept_input(t, run);
      if (lives_here) slot = tensors[t];
      if (lives_here && !in_windows) slot.offset = places_.at(blocks_text(slot.name, run)).offset;
      const bool one = run.shares(static_cast<BlockActivation>(t));
      const std::int64_t apart = one ? 0 : padded_bytes(slot.count, slot.dtype);
      for (std::int64_t i = 0; i < run.count; ++i) {
        slot.layer = run.first + i;
        if (in_windows) slot.offset = places_.at(window_text(windows_.window(slot.layer))).offset;
        blocks_[t].push_back(slot);
        slot.offset += apart;
      }
    }
  }
}

void DecoderMemory::place_shared(const ActivationLifetimes& lives, const OfShared<Slot>& tensors) {
  for (std::size_t t = 0; t < kSharedActivations; ++t) {
    for (std::size_t w = 0; w < kWithins; ++w) {
      if (tensors[t].count == 0 || lives.shared[t][w].empty()) continue;
      shared_[t][w] = tensors[t];
      shared_[t][w].offset = places_.at(within_text(tensors[t].name, w)).offset;
    }
  }
  using enum SharedActivation;
  for (const auto& [of_block, last] : {std::pair(BlockActivation::x, last_x),
                                       std::pair(BlockActivation::statistics, last_statistics)}) {
    blocks_[static_cast<std::size_t>(of_block)].push_back(
        shared_[static_cast<std::size_t>(last)].front());
  }
}

DecoderMemory::OfBlock<DecoderMemory::Slot> DecoderMemory::block_tensors(
    const DecoderShape& decoder, const DecoderRows& rows, DType dtype, const RecomputePlan& plan) {
  OfBlock<Slot> tensors;
  const auto add = [&](BlockActivation tensor, std::string_view name, std::int64_t count,
                       DType of) {
    tensors[static_cast<std::size_t>(tensor)] = {.count = count, .dtype = of, .name = name};
  };
  const std::int64_t own = checked_mul(rows.own, decoder.width);
  const std::int64_t figures = of_norm(decoder, rows.own);
  using enum BlockActivation;
  add(x, "x", own, dtype);
  add(x_share, "x_share", even_range(own, rows.rank, rows.ranks).count, dtype);
  add(statistics, "statistics", figures, DType::fp32);
  add(qkv, "qkv", checked_mul(rows.all, decoder.qkv_width()), dtype);
  add(logsumexp, "logsumexp", rows.all * decoder.heads, DType::fp32);
  add(attended, "attended", checked_mul(rows.all, decoder.attended_width()), dtype);
  add(middle, "middle", own, dtype);
  add(middle_statistics, "middle_statistics", figures, DType::fp32);
  add(hidden, "hidden", checked_mul(rows.all, decoder.hidden_width()), dtype);
  if (decoder.branch_norms) {
    add(projected, "projected", own, dtype);
    add(projected_statistics, "projected_statistics", rows.own, DType::fp32);
    add(output, "output", own, dtype);
    add(output_statistics, "output_statistics", rows.own, DType::fp32);
  }
  if (plan.outputs == BlockOutputs::kept) {
    add(normed, "normed", own, dtype);
    add(middle_normed, "middle_normed", own, dtype);
    if (!decoder.gated()) {
      add(activated, "activated", checked_mul(rows.all, decoder.intermediate), dtype);
    }
  }
  return tensors;
}

DecoderMemory::OfShared<DecoderMemory::Slot> DecoderMemory::shared_tensors(
    const DecoderShape& decoder, const DecoderRows& rows, DType dtype) {
  OfShared<Slot> tensors;
  const auto add = [&](SharedActivation tensor, std::string_view name, std::int64_t count,
                       DType of) {
    tensors[static_cast<std::size_t>(tensor)] = {.count = count, .dtype = of, .name = name};
  };
  const std::int64_t own = checked_mul(rows.own, decoder.width);
  const std::int64_t all = checked_mul(rows.all, decoder.width);
  const std::int64_t qkv = checked_mul(rows.all, decoder.qkv_width());
  using enum SharedActivation;
  add(normed, "normed", own, dtype);
  add(gathered_normed, "gathered_normed", all, dtype);
  add(branch, "branch", own, dtype);
  add(partial, "partial", all, dtype);
  add(normed_qkv, "normed_qkv", qkv, dtype);
  add(head_statistics, "head_statistics", rows.all * (decoder.heads + decoder.kv_heads),
      DType::fp32);
  add(activated, "activated", checked_mul(rows.all, decoder.intermediate), dtype);
  add(dbranch, "dbranch", own, dtype);
  add(gathered_dbranch, "gathered_dbranch", all, dtype);
  add(last_x, "x of the last norm", own, dtype);
  add(last_statistics, "statistics of the last norm", of_norm(decoder, rows.own), DType::fp32);
  add(dx, "dx", own, dtype);
  add(gathered_dx, "gathered_dx", all, dtype);
  add(partial_embedding, "partial_embedding", all, dtype);
  add(dhidden, "dhidden", checked_mul(rows.all, decoder.hidden_width()), dtype);
  add(dattended, "dattended", checked_mul(rows.all, decoder.attended_width()), dtype);
  add(dqkv, "dqkv", qkv, dtype);
  add(logits, "logits", checked_mul(rows.logits, rows.logit_columns), dtype);
  add(softmax, "softmax", VocabularyParallelHead::parts_count(rows.logits, rows.ranks),
      DType::fp32);
  add(losses, "losses", rows.all, DType::fp64);
  const std::int64_t norms =
      rows.sequence_parallel ? of_norm(decoder, decoder.branch_norms ? 4 : 2) * decoder.width : 0;
  add(norm_gradients, "norm_gradients", norms + head_gradients_of(decoder, rows), DType::fp32);
  const std::int64_t table = rows.sequence * (decoder.head_width / 2);
  add(cosines, "cosines", table, DType::fp32);
  add(sines, "sines", table, DType::fp32);
  add(local_cosines, "local_cosines", table, DType::fp32);
  add(local_sines, "local_sines", table, DType::fp32);
  return tensors;
}

View DecoderMemory::activated(std::int64_t i, Within within) const {
  if (keeps_outputs() && !gated_) return of(BlockActivation::activated, i);
  if (within == Within::mlp && !gated_) return hidden(i);
  return of(SharedActivation::activated, within);
}

void DecoderMemory::allocate(Device& device, Communicator& group) {
  arena_ = Buffer();
  arena_ =
      group.size() == 1
          ? device.allocate(bytes(), DType::u8, MemoryClass::activations, "activations")
          : group.allocate(device, bytes(), DType::u8, MemoryClass::activations, "activations");
}

View DecoderMemory::view(const Slot& slot) const {
  const View values = arena_.slice(slot.offset, slot.count * size_of(slot.dtype))
                          .reinterpret(slot.dtype, slot.count);
  if (listener_ != nullptr && !values.empty()) {
    listener_->tensor(slot.name, slot.layer, values);
  }
  return values;
}

}  // namespace zero
