// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#include "launch/plan/closed_activations.h"

#include <algorithm>
#include <set>

#include "model/vocabulary_parallel.h"

namespace zero {
namespace {

constexpr std::int64_t kFigure = 4;  // bytes of a norm's figure, of an attention's logsumexp
constexpr std::int64_t kLoss = 8;

/// A layer norm has two figures a row, an RMS norm one.
std::int64_t figures(const DecoderShape& decoder, std::int64_t rows) {
  return (decoder.norm == NormKind::layer ? 2 : 1) * rows * kFigure;
}

/// What blocks keep, and the places of what they compute again.
struct KeptAndPlaces {
  std::int64_t kept = 0;
  std::int64_t places = 0;
};

KeptAndPlaces blocks_of(const DecoderShape& decoder, const BlockBytes& bytes,
                        const RecomputePlan& plan) {
  KeptAndPlaces sum;
  std::set<std::pair<int, std::int64_t>> taken;  // tensor, place in the group
  for (std::int64_t i = 0; i < decoder.layers; ++i) {
    const BlockRecompute again = plan.block(i);
    const std::int64_t place = plan.blocks.empty() ? 0 : i - plan.first_of_group(i);
    const auto add = [&](int tensor, bool recomputed, std::int64_t of) {
      if (!recomputed) {
        sum.kept += of;
      } else if (taken.insert({tensor, place}).second) {
        sum.places += of;
      }
    };
    add(0, again.input, bytes.input);
    add(1, again.qkv, bytes.qkv);
    add(2, again.attended, bytes.attended);
    add(3, again.middle, bytes.middle);
    add(4, again.hidden, bytes.hidden);
  }
  return sum;
}

/// DecoderMemory::take_operands(), and what stands beside it in the constructor.
std::int64_t operands(const DecoderShape& decoder, const DecoderRows& rows, DType dtype) {
  const std::int64_t e = size_of(dtype);
  const std::int64_t own = rows.own * decoder.width * e;
  const std::int64_t all = rows.all * decoder.width * e;
  const std::int64_t attended = rows.all * decoder.attended_width() * e;
  std::int64_t bytes = own + figures(decoder, rows.own);  // x(layers) and the last norm's figures
  bytes += own + std::max(all, attended) + own;           // normed, partial, dx
  if (rows.sequence_parallel) bytes += own + all;         // branch, gathered
  if (decoder.branch_norms) bytes += own;                 // dbranch
  bytes += rows.all * kLoss;
  bytes += VocabularyParallelHead::parts_count(rows.logits, rows.ranks) * kFigure;
  const std::int64_t table = rows.sequence * (decoder.head_width / 2) * kFigure;
  if (decoder.rotary) bytes += 2 * table;
  if (decoder.local_rotary) bytes += 2 * table;
  return bytes;
}

/// DecoderMemory::take_wide() but the places: the MLP's operands or attention's.
std::int64_t wide(const DecoderShape& decoder, const DecoderRows& rows, DType dtype,
                  BlockOutputs outputs) {
  const std::int64_t e = size_of(dtype);
  const bool activated_kept = outputs == BlockOutputs::kept && !decoder.gated();
  std::int64_t mlp = activated_kept ? 0 : rows.all * decoder.intermediate * e;
  if (!decoder.gated()) mlp += rows.all * decoder.hidden_width() * e;
  std::int64_t attention = rows.all * decoder.qkv_width() * e;
  if (decoder.head_norms) {
    attention += attention + rows.all * (decoder.heads + decoder.kv_heads) * kFigure;
  }
  return std::max(mlp, attention);
}

}  // namespace

BlockBytes::BlockBytes(const DecoderShape& decoder, const DecoderRows& rows, DType dtype,
                       BlockOutputs outputs) {
  const std::int64_t e = size_of(dtype);
  const std::int64_t narrow = rows.own * decoder.width * e;
  const bool kept = outputs == BlockOutputs::kept;
  input = narrow + figures(decoder, rows.own);
  qkv = rows.all * decoder.qkv_width() * e + (kept ? narrow : 0);
  attended = rows.all * decoder.attended_width() * e + rows.all * decoder.heads * kFigure;
  middle = narrow + figures(decoder, rows.own);
  hidden = rows.all * decoder.hidden_width() * e + (kept ? narrow : 0);
  if (kept && !decoder.gated()) hidden += rows.all * decoder.intermediate * e;
  if (!decoder.branch_norms) return;
  middle += narrow + rows.own * kFigure;
  hidden += narrow + rows.own * kFigure;
}

std::int64_t closed_activations(const DecoderShape& decoder, const DecoderRows& rows, DType dtype,
                                const RecomputePlan& plan) {
  const BlockBytes bytes(decoder, rows, dtype, plan.outputs);
  const auto [kept, places] = blocks_of(decoder, bytes, plan);
  const std::int64_t logits = rows.logits * rows.logit_columns * size_of(dtype);
  return kept + operands(decoder, rows, dtype) +
         std::max(logits, places + wide(decoder, rows, dtype, plan.outputs));
}

}  // namespace zero
