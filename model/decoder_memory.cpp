// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#include "model/decoder_memory.h"

#include <algorithm>

#include "base/checked_math.h"

namespace zero {
namespace {

constexpr std::int64_t kAlignment = 64;

std::int64_t statistics_count(const DecoderShape& decoder, std::int64_t rows) {
  return decoder.norm == DecoderShape::Norm::layer ? 2 * rows : rows;
}

}  // namespace

DecoderMemory::DecoderMemory(const DecoderShape& decoder, BatchShape shape, DType dtype)
    : vocabulary_(decoder.vocabulary) {
  const std::int64_t rows = checked_mul(shape.batch, shape.sequence);
  const std::int64_t wide = checked_mul(rows, decoder.width);
  for (std::int64_t i = 0; i < decoder.layers; ++i) take_layer(decoder, rows, dtype);
  x_.push_back(take(wide, dtype));
  statistics_.push_back(take(statistics_count(decoder, rows), DType::fp32));
  normed_ = take(wide, dtype);
  branch_ = take(rows * std::max(decoder.width, decoder.attended_width()), dtype);
  dattended_ = {branch_.offset, rows * decoder.attended_width(), dtype};
  branch_.count = wide;
  dx_ = take(wide, dtype);
  losses_ = take(rows, DType::fp64);
  if (decoder.rotary) {
    cosines_ = take(shape.sequence * (decoder.head_width / 2), DType::fp32);
    sines_ = take(shape.sequence * (decoder.head_width / 2), DType::fp32);
  }
  take_wide(decoder, rows, dtype);
}

void DecoderMemory::take_layer(const DecoderShape& decoder, std::int64_t rows, DType dtype) {
  const std::int64_t wide = checked_mul(rows, decoder.width);
  x_.push_back(take(wide, dtype));
  statistics_.push_back(take(statistics_count(decoder, rows), DType::fp32));
  qkv_.push_back(take(checked_mul(rows, decoder.qkv_width()), dtype));
  log_sums_.push_back(take(rows * decoder.heads, DType::fp32));
  attended_.push_back(take(checked_mul(rows, decoder.attended_width()), dtype));
  middle_.push_back(take(wide, dtype));
  middle_statistics_.push_back(take(statistics_count(decoder, rows), DType::fp32));
  hidden_.push_back(take(checked_mul(rows, decoder.hidden_width()), dtype));
}

// The MLP's wide operands, the gradient of q, k and v, and the head's logits never live at once.
void DecoderMemory::take_wide(const DecoderShape& decoder, std::int64_t rows, DType dtype) {
  const std::int64_t shared = bytes_;
  activated_ = take(rows * decoder.intermediate, dtype);
  // SwiGLU's gradient takes the place of its operands.
  if (decoder.activation == DecoderShape::Activation::gelu) {
    dhidden_ = take(rows * decoder.hidden_width(), dtype);
  }
  std::int64_t end = bytes_;
  bytes_ = shared;
  dqkv_ = take(rows * decoder.qkv_width(), dtype);
  end = std::max(end, bytes_);
  bytes_ = shared;
  logits_ = take(checked_mul(std::min(rows, kChunkRows), decoder.vocabulary), dtype);
  bytes_ = std::max(bytes_, end);
}

DecoderMemory::Piece DecoderMemory::take(std::int64_t count, DType dtype) {
  const Piece piece{bytes_, count, dtype};
  bytes_ = round_up(bytes_ + checked_mul(count, size_of(dtype)), kAlignment);
  return piece;
}

void DecoderMemory::allocate(Device& device) {
  arena_ = Buffer();
  arena_ = device.allocate(bytes_, DType::u8, MemoryClass::activations, "activations");
}

View DecoderMemory::view(const Piece& piece) const {
  return arena_.slice(piece.offset, piece.count * size_of(piece.dtype))
      .reinterpret(piece.dtype, piece.count);
}

View DecoderMemory::logits(std::int64_t rows) const {
  return view(logits_).slice(0, rows * vocabulary_);
}

}  // namespace zero
