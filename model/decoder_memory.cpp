// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#include "model/decoder_memory.h"

#include <algorithm>
#include <utility>

#include "base/checked_math.h"
#include "model/unit_listener.h"
#include "model/vocabulary_parallel.h"
#include "partition/tensor_slice.h"

namespace zero {
namespace {

constexpr std::int64_t kAlignment = 64;
constexpr std::int64_t kShared = -1;  // the offset of a slot that take_shared() will place

// A layer norm has two figures per row and two parameters; an RMS norm one of each.
std::int64_t of_norm(const DecoderShape& decoder, std::int64_t count) {
  return decoder.norm == NormKind::layer ? 2 * count : count;
}

}  // namespace

DecoderMemory::DecoderMemory(const DecoderShape& decoder, const DecoderRows& rows, DType dtype,
                             const RecomputePlan& plan)
    : plan_(plan), partitions_(plan.partition_inputs && rows.ranks > 1 && !rows.sequence_parallel) {
  for (std::int64_t i = 0; i < decoder.layers; ++i) {
    turns_locally_.push_back(decoder.turns_locally(i));
    take_layer(i, decoder, rows, dtype);
  }
  x_.push_back(take(checked_mul(rows.own, decoder.width), dtype));
  statistics_.push_back(take(of_norm(decoder, rows.own), DType::fp32));
  take_operands(decoder, rows, dtype);
  losses_ = take(rows.all, DType::fp64);
  softmax_ = take(VocabularyParallelHead::parts_count(rows.logits, rows.ranks), DType::fp32);
  take_gradients(decoder, rows);
  const std::int64_t table = rows.sequence * (decoder.head_width / 2);
  if (decoder.rotary) {
    cosines_ = take(table, DType::fp32);
    sines_ = take(table, DType::fp32);
  }
  if (decoder.local_rotary) {
    local_cosines_ = take(table, DType::fp32);
    local_sines_ = take(table, DType::fp32);
  }
  take_wide(decoder, rows, dtype);
  name_slots();
}

void DecoderMemory::name_slots() {
  using OfBlocks = std::pair<std::string_view, std::vector<Slot>*>;
  for (const auto& [name, slots] :
       {OfBlocks{"x", &x_}, OfBlocks{"statistics", &statistics_}, OfBlocks{"x_share", &x_shares_},
        OfBlocks{"normed", &normeds_}, OfBlocks{"qkv", &qkv_}, OfBlocks{"logsumexp", &logsumexp_},
        OfBlocks{"attended", &attended_}, OfBlocks{"projected", &projected_},
        OfBlocks{"projected_statistics", &projected_statistics_}, OfBlocks{"middle", &middle_},
        OfBlocks{"middle_statistics", &middle_statistics_},
        OfBlocks{"middle_normed", &middle_normeds_}, OfBlocks{"hidden", &hidden_},
        OfBlocks{"activated", &activations_}, OfBlocks{"output", &outputs_},
        OfBlocks{"output_statistics", &output_statistics_}}) {
    for (std::size_t i = 0; i < slots->size(); ++i) {
      (*slots)[i].name = name;
      (*slots)[i].layer = static_cast<std::int64_t>(i);
    }
  }
  for (Slot* const last : {&x_.back(), &statistics_.back()}) last->layer = -1;
  x_.back().name = "x of the last norm";
  statistics_.back().name = "statistics of the last norm";
  using Shared = std::pair<std::string_view, Slot*>;
  for (const auto& [name, slot] : {Shared{"normed", &normed_},
                                   Shared{"gathered_normed", &gathered_normed_},
                                   Shared{"branch", &branch_},
                                   Shared{"partial", &partial_},
                                   Shared{"partial_embedding", &partial_embedding_},
                                   Shared{"dx", &dx_},
                                   Shared{"gathered_dx", &gathered_dx_},
                                   Shared{"dbranch", &dbranch_},
                                   Shared{"gathered_dbranch", &gathered_dbranch_},
                                   Shared{"normed_qkv", &normed_qkv_},
                                   Shared{"head_statistics", &head_statistics_},
                                   Shared{"dattended", &dattended_},
                                   Shared{"activated", &activated_},
                                   Shared{"dhidden", &dhidden_},
                                   Shared{"dqkv", &dqkv_},
                                   Shared{"logits", &logits_},
                                   Shared{"softmax", &softmax_},
                                   Shared{"losses", &losses_},
                                   Shared{"norm_gradients", &norm_gradients_},
                                   Shared{"head_gradients", &head_gradients_},
                                   Shared{"cosines", &cosines_},
                                   Shared{"sines", &sines_},
                                   Shared{"local_cosines", &local_cosines_},
                                   Shared{"local_sines", &local_sines_}}) {
    slot->name = name;
    slot->layer = -1;
  }
  // One tensor by two names has the first.
  using Same = std::pair<Slot*, const Slot*>;
  for (const auto& [slot, first] :
       {Same{&partial_, &branch_}, Same{&dbranch_, &dx_}, Same{&gathered_dx_, &dx_},
        Same{&gathered_dbranch_, &dbranch_}, Same{&gathered_dbranch_, &gathered_dx_},
        Same{&partial_embedding_, &x_.front()}}) {
    if (slot->offset != first->offset) continue;
    slot->name = first->name;
    slot->layer = first->layer;
  }
}

void DecoderMemory::take_layer(std::int64_t i, const DecoderShape& decoder, const DecoderRows& rows,
                               DType dtype) {
  const BlockRecompute again = plan_.block(i);
  const auto keep = [&](bool recomputed, std::int64_t count, DType of) {
    return recomputed ? Slot{kShared, count, of} : take(count, of);
  };
  const std::int64_t narrow = checked_mul(rows.own, decoder.width);
  const bool shares = partitioned(i);
  x_shares_.push_back(take(shares ? even_range(narrow, rows.rank, rows.ranks).count : 0, dtype));
  x_.push_back(keep(again.input || shares, narrow, dtype));
  statistics_.push_back(keep(again.input, of_norm(decoder, rows.own), DType::fp32));
  qkv_.push_back(keep(again.qkv, checked_mul(rows.all, decoder.qkv_width()), dtype));
  logsumexp_.push_back(keep(again.attended, rows.all * decoder.heads, DType::fp32));
  attended_.push_back(keep(again.attended, checked_mul(rows.all, decoder.attended_width()), dtype));
  middle_.push_back(keep(again.middle, narrow, dtype));
  middle_statistics_.push_back(keep(again.middle, of_norm(decoder, rows.own), DType::fp32));
  hidden_.push_back(keep(again.hidden, checked_mul(rows.all, decoder.hidden_width()), dtype));
  if (decoder.branch_norms) {
    projected_.push_back(keep(again.middle, narrow, dtype));
    projected_statistics_.push_back(keep(again.middle, rows.own, DType::fp32));
    outputs_.push_back(keep(again.hidden, narrow, dtype));
    output_statistics_.push_back(keep(again.hidden, rows.own, DType::fp32));
  }
  if (!keeps_outputs()) return;
  normeds_.push_back(keep(again.qkv, narrow, dtype));
  middle_normeds_.push_back(keep(again.hidden, narrow, dtype));
  if (decoder.gated()) return;
  activations_.push_back(keep(again.hidden, checked_mul(rows.all, decoder.intermediate), dtype));
}

// One slot for each place in a block group: while a group's backward runs, only its own blocks use
// them.
void DecoderMemory::take_shared() {
  for (std::vector<Slot>* const slots :
       {&x_, &statistics_, &qkv_, &logsumexp_, &attended_, &middle_, &middle_statistics_, &hidden_,
        &normeds_, &middle_normeds_, &activations_, &projected_, &projected_statistics_, &outputs_,
        &output_statistics_}) {
    std::vector<Slot> places;
    for (std::size_t i = 0; i < slots->size(); ++i) {
      Slot& slot = (*slots)[i];
      if (slot.offset != kShared) continue;
      const auto block = static_cast<std::int64_t>(i);
      const auto place = static_cast<std::size_t>(block - plan_.first_of_group(block));
      if (places.size() <= place) places.resize(place + 1, slot);
      if (places[place].offset == kShared) places[place] = take(slot.count, slot.dtype);
      slot = places[place];
    }
  }
}

void DecoderMemory::take_operands(const DecoderShape& decoder, const DecoderRows& rows,
                                  DType dtype) {
  const std::int64_t own = checked_mul(rows.own, decoder.width);
  const std::int64_t all = checked_mul(rows.all, decoder.width);
  const std::int64_t attended = rows.all * decoder.attended_width();
  normed_ = take(own, dtype);
  // Addends of sums over ranks share the memory of the sum, unless the sum has other rows.
  if (rows.sequence_parallel) branch_ = take(own, dtype);
  partial_ = take(std::max(all, attended), dtype);
  partial_.count = all;
  dattended_ = {partial_.offset, attended, dtype};
  dx_ = take(own, dtype);
  if (rows.sequence_parallel) {
    gathered_normed_ = gathered_dx_ = take(all, dtype);
    partial_embedding_ = partial_;
  } else {
    branch_ = partial_;
    gathered_dx_ = dx_;
  }
  dbranch_ = decoder.branch_norms ? take(own, dtype) : dx_;
  gathered_dbranch_ = rows.sequence_parallel ? gathered_dx_ : dbranch_;
}

void DecoderMemory::take_gradients(const DecoderShape& decoder, const DecoderRows& rows) {
  const std::int64_t norms =
      rows.sequence_parallel ? of_norm(decoder, decoder.branch_norms ? 4 : 2) * decoder.width : 0;
  const std::int64_t heads = decoder.head_norms && rows.ranks > 1 ? 2 * decoder.head_width : 0;
  if (norms + heads == 0) return;
  norm_gradients_ = take(norms + heads, DType::fp32);
  head_gradients_ = {norm_gradients_.offset + norms * size_of(DType::fp32), heads, DType::fp32};
}

// The MLP's wide operands, the attention's, and the head's logits never live at once,
// nor do logits and what blocks compute again.
void DecoderMemory::take_wide(const DecoderShape& decoder, const DecoderRows& rows, DType dtype) {
  const std::int64_t of_head = bytes_;
  take_shared();
  if (!rows.sequence_parallel) partial_embedding_ = x_.front();
  const std::int64_t shared = bytes_;
  if (activations_.empty()) activated_ = take(rows.all * decoder.intermediate, dtype);
  // A gated unit's gradient overwrites its operands.
  if (!decoder.gated()) {
    dhidden_ = take(rows.all * decoder.hidden_width(), dtype);
  }
  std::int64_t end = bytes_;
  bytes_ = shared;
  dqkv_ = take(rows.all * decoder.qkv_width(), dtype);
  if (decoder.head_norms) {
    normed_qkv_ = take(rows.all * decoder.qkv_width(), dtype);
    head_statistics_ = take(rows.all * (decoder.heads + decoder.kv_heads), DType::fp32);
  }
  end = std::max(end, bytes_);
  bytes_ = of_head;
  logits_ = take(checked_mul(rows.logits, rows.logit_columns), dtype);
  bytes_ = std::max(bytes_, end);
}

DecoderMemory::Slot DecoderMemory::take(std::int64_t count, DType dtype) {
  const Slot slot{bytes_, count, dtype};
  bytes_ = round_up(bytes_ + checked_mul(count, size_of(dtype)), kAlignment);
  return slot;
}

void DecoderMemory::allocate(Device& device, Communicator& group) {
  arena_ = Buffer();
  arena_ = group.size() == 1
               ? device.allocate(bytes_, DType::u8, MemoryClass::activations, "activations")
               : group.allocate(device, bytes_, DType::u8, MemoryClass::activations, "activations");
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
