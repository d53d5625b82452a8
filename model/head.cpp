// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#include "model/head.h"

#include <algorithm>

namespace zero {

LinearShape LossHead::linear(std::int64_t count) const {
  return {.rows = count,
          .in = width,
          .out = vocabulary,
          .layout = WeightLayout::out_in,
          .dtype = dtype,
          .weight_gradient = DType::fp32};
}

void LossHead::prepare(Ops& ops) const {
  const std::int64_t chunk = std::min(rows, DecoderMemory::kChunkRows);
  ops.prepare(linear(chunk), Ops::LinearUse::training);
  if (rows % chunk != 0) ops.prepare(linear(rows % chunk), Ops::LinearUse::training);
  ops.prepare(linear(1), Ops::LinearUse::forward_fp32);
}

void LossHead::train(Ops& ops, const DecoderMemory& memory, const Gradient& g, View targets) const {
  for (std::int64_t begin = 0; begin < rows; begin += DecoderMemory::kChunkRows) {
    const std::int64_t count = std::min(DecoderMemory::kChunkRows, rows - begin);
    const LinearShape shape = linear(count);
    const View logits = memory.logits(count);
    const View normed = memory.normed().slice(begin * width, count * width);
    ops.linear_forward(shape, normed, g.weight, View(), logits);
    ops.cross_entropy_backward({count, vocabulary, dtype}, logits, targets.slice(begin, count),
                               g.scale, memory.losses().slice(begin, count));
    ops.linear_backward_weight(shape, normed, logits, g.gradient,
                               begin == 0 ? g.write : Write::add);
    ops.linear_backward_input(shape, logits, g.weight,
                              memory.branch().slice(begin * width, count * width));
  }
}

void LossHead::evaluate(Ops& ops, const DecoderMemory& memory, View weight, View targets) const {
  for (std::int64_t begin = 0; begin < rows; begin += DecoderMemory::kChunkRows) {
    const std::int64_t count = std::min(DecoderMemory::kChunkRows, rows - begin);
    const View normed = memory.normed().slice(begin * width, count * width);
    ops.linear_forward(linear(count), normed, weight, View(), memory.logits(count));
    ops.cross_entropy_forward({count, vocabulary, dtype}, memory.logits(count),
                              targets.slice(begin, count), memory.losses().slice(begin, count));
  }
}

void LossHead::logits(Ops& ops, View row, View weight, View out) const {
  ops.linear_forward(linear(1), row, weight, View(), out);
}

}  // namespace zero
