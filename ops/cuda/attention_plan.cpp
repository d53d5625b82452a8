// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#include "ops/cuda/attention_plan.h"

namespace zero::cuda {
namespace {

constexpr std::int64_t kNarrowHead = 128;  // wider ones leave fewer registers for queries

std::int32_t as_int(std::int64_t value) { return static_cast<std::int32_t>(value); }

}  // namespace

AttentionPlanner::AttentionPlanner(const PassLimits& limits)
    : limits_(limits), queries_per_kv_(limits.heads / limits.cache.kv_heads) {
  many_ = limits.cache.head_width <= kNarrowHead ? 16 : 8;
  few_ = queries_per_kv_ == 1 ? 1 : queries_per_kv_ <= 4 ? 4 : many_;
  const std::int64_t splits = div_ceil(limits.tokens, kSplit);
  if (splits > 1) {
    slots_ = std::min(kMostSlots, limits.sequences * std::max(few_, queries_per_kv_) * splits);
  }
}

/// A sequence's queries, a tile at a time.
struct AttentionPlanner::Cut {
  const SequenceRows& sequence;
  std::int64_t table = 0;
  std::int64_t query = 0;
  std::int64_t queries = 0;
};

void AttentionPlanner::add(const Cut& cut, AttentionPlan& plan, std::int64_t& slots) const {
  const SequenceRows& s = cut.sequence;
  const bool few = s.count == 1 || s.count * queries_per_kv_ <= few_;
  AttentionTile tile{.table = as_int(cut.table),
                     .position = as_int(s.position),
                     .row = as_int(s.first),
                     .query = as_int(cut.query),
                     .queries = as_int(cut.queries)};
  const std::int64_t last = s.position + (cut.query + cut.queries - 1) / queries_per_kv_;
  const std::int64_t splits = last / kSplit + 1;
  if (!few || splits == 1 || splits * cut.queries > slots_ - slots) {
    (few ? plan.few : plan.many).push_back(tile);
    return;
  }
  for (std::int64_t i = 0; i < splits; ++i) {
    tile.split = as_int(i);
    tile.parts = as_int(slots + i * cut.queries);
    plan.few.push_back(tile);
  }
  for (std::int64_t i = 0; i < cut.queries; ++i) {
    const std::int64_t row = (cut.query + i) / queries_per_kv_;
    plan.splits.push_back({.row = as_int(s.first + row),
                           .position = as_int(s.position + row),
                           .head = as_int((cut.query + i) % queries_per_kv_),
                           .parts = as_int(slots + i),
                           .stride = tile.queries,
                           .splits = as_int(splits)});
  }
  slots += splits * cut.queries;
}

AttentionPlan AttentionPlanner::plan(const PassRows& pass) const {
  AttentionPlan plan;
  std::int64_t slots = 0;
  std::int64_t table = 0;
  for (const SequenceRows& sequence : pass.sequences) {
    const std::int64_t all = sequence.count * queries_per_kv_;
    const std::int64_t most = sequence.count == 1 || all <= few_ ? few_ : many_;
    // Late queries read the most keys: their blocks start first.
    for (std::int64_t query = (all - 1) / most * most; query >= 0; query -= most) {
      add({sequence, table, query, std::min(most, all - query)}, plan, slots);
    }
    table += std::ssize(sequence.blocks);
  }
  return plan;
}

}  // namespace zero::cuda
