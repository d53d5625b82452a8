// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#include "model/decoder_memory.h"

#include <algorithm>

#include "base/checked_math.h"
#include "model/vocabulary_parallel_head.h"

namespace zero {
namespace {

constexpr std::int64_t kAlignment = 64;

// A layer norm has two figures per row and two parameters; an RMS norm one of each.
std::int64_t of_norm(const DecoderShape& decoder, std::int64_t count) {
  return decoder.norm == NormKind::layer ? 2 * count : count;
}

}  // namespace

DecoderMemory::DecoderMemory(const DecoderShape& decoder, const DecoderRows& rows, DType dtype) {
  for (std::int64_t i = 0; i < decoder.layers; ++i) take_layer(decoder, rows, dtype);
  x_.push_back(take(checked_mul(rows.own, decoder.width), dtype));
  statistics_.push_back(take(of_norm(decoder, rows.own), DType::fp32));
  take_operands(decoder, rows, dtype);
  losses_ = take(rows.all, DType::fp64);
  softmax_ = take(VocabularyParallelHead::parts_count(rows.logits, rows.ranks), DType::fp32);
  if (rows.sequence_parallel) {
    norm_gradients_ = take(2 * of_norm(decoder, decoder.width), DType::fp32);
  }
  if (decoder.rotary) {
    cosines_ = take(rows.sequence * (decoder.head_width / 2), DType::fp32);
    sines_ = take(rows.sequence * (decoder.head_width / 2), DType::fp32);
  }
  take_wide(decoder, rows, dtype);
}

void DecoderMemory::take_layer(const DecoderShape& decoder, const DecoderRows& rows, DType dtype) {
  const std::int64_t narrow = checked_mul(rows.own, decoder.width);
  x_.push_back(take(narrow, dtype));
  statistics_.push_back(take(of_norm(decoder, rows.own), DType::fp32));
  qkv_.push_back(take(checked_mul(rows.all, decoder.qkv_width()), dtype));
  log_sums_.push_back(take(rows.all * decoder.heads, DType::fp32));
  attended_.push_back(take(checked_mul(rows.all, decoder.attended_width()), dtype));
  middle_.push_back(take(narrow, dtype));
  middle_statistics_.push_back(take(of_norm(decoder, rows.own), DType::fp32));
  hidden_.push_back(take(checked_mul(rows.all, decoder.hidden_width()), dtype));
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
    gathered_normed_ = normed_;
    gathered_dx_ = dx_;
    partial_embedding_ = x_.front();
  }
}

// The MLP's wide operands, the gradient of q, k and v, and the head's logits never live at once.
void DecoderMemory::take_wide(const DecoderShape& decoder, const DecoderRows& rows, DType dtype) {
  const std::int64_t shared = bytes_;
  activated_ = take(rows.all * decoder.intermediate, dtype);
  // SwiGLU's gradient overwrites its operands.
  if (decoder.activation == DecoderShape::Activation::gelu) {
    dhidden_ = take(rows.all * decoder.hidden_width(), dtype);
  }
  std::int64_t end = bytes_;
  bytes_ = shared;
  dqkv_ = take(rows.all * decoder.qkv_width(), dtype);
  end = std::max(end, bytes_);
  bytes_ = shared;
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
  return arena_.slice(slot.offset, slot.count * size_of(slot.dtype))
      .reinterpret(slot.dtype, slot.count);
}

}  // namespace zero
