// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#include "model/gpt2_memory.h"

#include <algorithm>

#include "base/checked_math.h"

namespace zero {
namespace {
constexpr std::int64_t kAlignment = 64;
}  // namespace

Gpt2Memory::Gpt2Memory(const Gpt2Config& config, BatchShape shape, DType dtype)
    : vocabulary_(config.vocabulary) {
  const std::int64_t rows = checked_mul(shape.batch, shape.sequence);
  const std::int64_t wide = checked_mul(rows, config.width);
  for (std::int64_t i = 0; i < config.layers; ++i) {
    x_.push_back(take(wide, dtype));
    statistics_.push_back(take(2 * rows, DType::fp32));
    qkv_.push_back(take(3 * wide, dtype));
    log_sums_.push_back(take(rows * config.heads, DType::fp32));
    attended_.push_back(take(wide, dtype));
    middle_.push_back(take(wide, dtype));
    middle_statistics_.push_back(take(2 * rows, DType::fp32));
    hidden_.push_back(take(4 * wide, dtype));
  }
  x_.push_back(take(wide, dtype));
  statistics_.push_back(take(2 * rows, DType::fp32));
  normed_ = take(wide, dtype);
  branch_ = take(wide, dtype);
  dx_ = take(wide, dtype);
  losses_ = take(rows, DType::fp64);
  // A block's wide operands and the head's logits never live at once.
  const std::int64_t shared = bytes_;
  activated_ = take(4 * wide, dtype);
  dhidden_ = take(4 * wide, dtype);
  const std::int64_t end = bytes_;
  bytes_ = dhidden_.offset;
  dqkv_ = take(3 * wide, dtype);
  bytes_ = shared;
  logits_ = take(std::min(rows, kChunkRows) * config.vocabulary, dtype);
  bytes_ = std::max(bytes_, end);
}

Gpt2Memory::Piece Gpt2Memory::take(std::int64_t count, DType dtype) {
  const Piece piece{bytes_, count, dtype};
  bytes_ = round_up(bytes_ + checked_mul(count, size_of(dtype)), kAlignment);
  return piece;
}

void Gpt2Memory::allocate(Device& device) {
  arena_ = Buffer();
  arena_ = device.allocate(bytes_, DType::u8, MemoryClass::activations, "activations");
}

View Gpt2Memory::view(const Piece& piece) const {
  return arena_.slice(piece.offset, piece.count * size_of(piece.dtype))
      .reinterpret(piece.dtype, piece.count);
}

View Gpt2Memory::logits(std::int64_t rows) const {
  return view(logits_).slice(0, rows * vocabulary_);
}

}  // namespace zero
