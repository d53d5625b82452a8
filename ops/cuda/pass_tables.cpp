// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#include "ops/cuda/pass_tables.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <span>
#include <vector>

#include "base/error.h"

namespace zero::cuda {
namespace {

constexpr std::int64_t kNarrowHead = 128;  // wider ones leave fewer registers for queries

std::int32_t as_int(std::int64_t value) { return static_cast<std::int32_t>(value); }

/// Elements of i32 in a T.
template <typename T>
constexpr std::int64_t kInts = static_cast<std::int64_t>(sizeof(T)) / 4;

/// Elements of the tables, i32.
std::int64_t table_ints(const PassLimits& limits, const AttentionPlanner& planner) {
  const std::int64_t blocks =
      checked_mul(limits.sequences, div_ceil(limits.tokens, limits.cache.block_tokens));
  return 3 * limits.rows + limits.logit_rows + blocks +
         planner.most_tiles() * kInts<AttentionTile> + planner.slots() * kInts<SplitQuery>;
}

/// Lays lists one after another into staging memory, and tells where the device has them.
class Writer {
 public:
  Writer(std::span<std::int32_t> staging, const std::int32_t* device)
      : staging_(staging), device_(device) {}

  /// `list`, filled up to `count` elements with zeros.
  template <typename T>
  const T* put(std::span<const T> list, std::int64_t count) {
    const std::int64_t ints = count * kInts<T>;
    ZERO_CHECK(ints <= std::ssize(staging_) - count_,
               "begin: the rows of a pass take more than the {} numbers of its limits; expected a "
               "pass that prepare() was told of",
               staging_.size());
    const std::span<std::int32_t> to =
        staging_.subspan(static_cast<std::size_t>(count_), static_cast<std::size_t>(ints));
    if (!list.empty()) std::memcpy(to.data(), list.data(), list.size_bytes());
    std::ranges::fill(to.subspan(list.size_bytes() / sizeof(std::int32_t)), 0);
    const std::int32_t* const place = device_ + count_;
    count_ += ints;
    return reinterpret_cast<const T*>(place);
  }
  std::int64_t count() const { return count_; }

 private:
  std::span<std::int32_t> staging_;
  const std::int32_t* device_;
  std::int64_t count_ = 0;
};

/// The number of elements that a list of `count` is filled up to, at most to `most`.
std::int64_t filled(std::int64_t count, std::int64_t most) {
  const auto power = static_cast<std::int64_t>(std::bit_ceil(static_cast<std::uint64_t>(count)));
  return count == 0 ? 0 : std::max(count, std::min(power, most));
}

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

PassTables::PassTables(Device& device, const PassLimits& limits)
    : device_(&device), planner_(limits) {
  const std::int64_t ints = table_ints(limits, planner_);
  memory_ = device.allocate(ints, DType::i32, MemoryClass::activations, "rows of a pass");
  for (Staging& each : staging_) {
    each.memory = device.allocate_host(ints, DType::i32, MemoryClass::staging, "rows of a pass");
  }
}

const DevicePass& PassTables::upload(const PassRows& pass) {
  Staging& staging = staging_[next_];
  next_ = (next_ + 1) % staging_.size();
  staging.copied.synchronize();
  const AttentionPlan plan = planner_.plan(pass);
  std::vector<std::int32_t> tables;
  std::vector<std::int32_t> blocks;
  for (const SequenceRows& sequence : pass.sequences) {
    tables.insert(tables.end(), static_cast<std::size_t>(sequence.count),
                  static_cast<std::int32_t>(blocks.size()));
    blocks.insert(blocks.end(), sequence.blocks.begin(), sequence.blocks.end());
  }
  Writer writer(staging.memory.view().as<std::int32_t>(),
                static_cast<const std::int32_t*>(memory_.view().data()));
  const auto put = [&](const auto& list) { return writer.put(std::span(list), std::ssize(list)); };
  pass_ = {.rows = pass.count(),
           .logit_count = std::ssize(pass.logit_rows),
           .few_count = filled(std::ssize(plan.few), planner_.most_tiles() - std::ssize(plan.many)),
           .many_count = std::ssize(plan.many),
           .split_count = filled(std::ssize(plan.splits), planner_.slots())};
  pass_.tokens = put(pass.tokens);
  pass_.positions = put(pass.positions);
  pass_.tables = put(tables);
  pass_.logit_rows = put(pass.logit_rows);
  pass_.few = writer.put(std::span(plan.few), pass_.few_count);
  pass_.splits = writer.put(std::span(plan.splits), pass_.split_count);
  pass_.many = put(plan.many);
  pass_.blocks = put(blocks);
  device_->kernels().convert(device_->compute(), staging.memory.slice(0, writer.count()),
                             memory_.slice(0, writer.count()));
  staging.copied = device_->compute().record();
  return pass_;
}

}  // namespace zero::cuda
