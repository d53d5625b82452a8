// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#include "inference/split_vocabulary.h"

#include <algorithm>

#include "base/error.h"
#include "base/mixed_bits.h"
#include "collectives/host_values.h"

namespace zero {
namespace {

constexpr std::int64_t kFigures = 4;  // rows, rows with logits, two halves of the digest

/// Equal for equal passes: tokens, positions, where in the cache they are, rows with logits.
std::uint64_t digest_of(const PassRows& pass) {
  std::uint64_t digest = 0;
  const auto add = [&digest](std::int64_t value) {
    digest = mixed_bits(digest + kGoldenGamma + static_cast<std::uint64_t>(value));
  };
  for (const auto* list : {&pass.tokens, &pass.positions, &pass.logit_rows}) {
    add(std::ssize(*list));
    for (const std::int32_t each : *list) add(each);
  }
  for (const SequenceRows& sequence : pass.sequences) {
    add(sequence.count);
    for (const std::int32_t block : sequence.blocks) add(block);
  }
  return digest;
}

std::vector<Slices::Range> adjacent(const std::vector<std::int64_t>& counts) {
  std::vector<Slices::Range> ranges;
  std::int64_t begin = 0;
  for (const std::int64_t count : counts) {
    ranges.push_back({begin, count});
    begin += count;
  }
  return ranges;
}

std::vector<Slices::Range> times(std::vector<Slices::Range> ranges, std::int64_t elements) {
  for (Slices::Range& range : ranges) {
    range.begin *= elements;
    range.count *= elements;
  }
  return ranges;
}

}  // namespace

PassExchange::PassExchange(Device& device, const ModelRanks& ranks, std::int64_t rows)
    : device_(device),
      ranks_(ranks),
      each_(kFigures + rows),
      told_(static_cast<std::size_t>(ranks.all.size * each_)) {
  plan_host_values(device);
}

void PassExchange::run(const PassRows& pass) {
  const View all = View::of(std::span(told_));
  const auto mine = std::span(told_).subspan(static_cast<std::size_t>(ranks_.all.rank * each_),
                                             static_cast<std::size_t>(each_));
  const std::uint64_t digest = digest_of(pass);
  mine[0] = static_cast<std::int32_t>(pass.count());
  mine[1] = static_cast<std::int32_t>(pass.logit_rows.size());
  mine[2] = static_cast<std::int32_t>(digest);
  mine[3] = static_cast<std::int32_t>(digest >> 32);
  std::ranges::copy(pass.tokens, mine.begin() + kFigures);
  host_all_gather(*ranks_.all.communicator, device_, Slices::even(all, ranks_.all.size),
                  {"passes", {}});
  for (int rank = 0; rank < ranks_.all.size; ++rank) {
    const int first = rank - rank % ranks_.tensor.size;
    ZERO_CHECK(std::ranges::equal(told(rank).first(kFigures), told(first).first(kFigures)),
               "forward: rank {} of the model has a pass of {} tokens, and rank {}, of the same "
               "tensor group, another one, of {} tokens; expected the same calls on all ranks of a "
               "tensor group",
               rank, told(rank)[0], first, told(first)[0]);
  }
}

std::span<const std::int32_t> PassExchange::told(int rank) const {
  return std::span(told_).subspan(static_cast<std::size_t>(rank * each_),
                                  static_cast<std::size_t>(each_));
}

PassExchange::Pass PassExchange::of(int shard) const {
  const auto told = this->told(shard * ranks_.tensor.size);
  return {told.subspan(kFigures, static_cast<std::size_t>(told[0])), told[1]};
}

std::int64_t PassExchange::rows() const {
  std::int64_t rows = 0;
  for (int shard = 0; shard < ranks_.shard.size; ++shard) rows += std::ssize(of(shard).tokens);
  return rows;
}

std::int64_t PassExchange::logit_rows() const {
  std::int64_t rows = 0;
  for (int shard = 0; shard < ranks_.shard.size; ++shard) rows += of(shard).logit_rows;
  return rows;
}

SplitVocabulary::SplitVocabulary(Device& device, InferenceOps& ops, const ModelRanks& ranks,
                                 const std::vector<Slices::Range>& tokens, const Size& size)
    : device_(device), ops_(ops), ranks_(ranks), tokens_(tokens), size_(size) {
  const int shards = ranks.shard.size;
  const std::int64_t own = columns(ranks.all.rank);
  const std::int64_t vocabulary = tokens.back().begin + tokens.back().count;
  const auto take = [&](std::int64_t count, DType dtype) {
    Communicator& of = ranks.shard.communicator != nullptr ? *ranks.shard.communicator
                                                           : *ranks.tensor.communicator;
    return of.allocate(device, count, dtype, MemoryClass::communication, "vocabulary");
  };
  rows_received_ = take(size.rows * size.width, size.dtype);
  // A product overwrites whole groups of rows: behind this rank's part too.
  logits_received_ = take(size.logit_rows * vocabulary + ops.padded_rows(1) * own, DType::fp32);
  if (shards == 1) return;
  const std::int64_t logit_rows = ops.padded_rows(shards * size.logit_rows);
  rows_sent_ = take(shards * size.rows * size.width, size.dtype);
  head_rows_ = take(logit_rows * size.width, size.dtype);
  logits_sent_ = take(logit_rows * own, DType::fp32);
  device.kernels().zero(device.compute(), head_rows_.view());  // products read padding
}

void SplitVocabulary::prepare(const WeightShape& head) {
  if (head.out > 0) ops_.prepare(head, ranks_.shard.size * size_.logit_rows);
}

int SplitVocabulary::owner(std::int32_t token) const {
  const auto last = [](const Slices::Range& range) { return range.begin + range.count - 1; };
  const auto found = std::ranges::lower_bound(tokens_, token, {}, last);
  return static_cast<int>(found - tokens_.begin());
}

// In received memory the parts that come at one tensor index are adjacent.
SplitVocabulary::Ranges SplitVocabulary::arrivals(const std::vector<std::int64_t>& counts) const {
  Ranges ranges(counts.size());
  std::int64_t begin = 0;
  for (int tensor = 0; tensor < ranks_.tensor.size; ++tensor) {
    for (int shard = 0; shard < ranks_.shard.size; ++shard) {
      const auto rank = static_cast<std::size_t>(shard * ranks_.tensor.size + tensor);
      ranges[rank] = {begin, counts[rank]};
      begin += counts[rank];
    }
  }
  return ranges;
}

// Both ends list rows in the order of the pass that they belong to.
void SplitVocabulary::route(const PassExchange& passes) {
  routed_.tokens.clear();
  routed_.receive_order.clear();
  const int own = ranks_.all.rank;
  std::vector<std::int64_t> to;
  for (int shard = 0; shard < ranks_.shard.size; ++shard) {
    const auto before = std::ssize(routed_.tokens);
    for (const std::int32_t token : passes.of(shard).tokens) {
      if (owner(token) != own) continue;
      routed_.tokens.push_back(
          token - static_cast<std::int32_t>(tokens_[static_cast<std::size_t>(own)].begin));
    }
    to.push_back(std::ssize(routed_.tokens) - before);
  }
  routed_to_ = adjacent(to);
  const std::span<const std::int32_t> tokens = passes.of(ranks_.shard.rank).tokens;
  std::vector<std::int64_t> from(tokens_.size(), 0);
  for (const std::int32_t token : tokens) ++from[static_cast<std::size_t>(owner(token))];
  routed_from_ = arrivals(from);
  Ranges next = routed_from_;
  for (const std::int32_t token : tokens) {
    std::int64_t& place = next[static_cast<std::size_t>(owner(token))].begin;
    routed_.receive_order.push_back(static_cast<std::int32_t>(place++));
  }
}

void SplitVocabulary::exchange(const Exchange& e) {
  Stream& communication = device_.communication();
  communication.wait(device_.compute().record());
  const Tag tag{std::string(e.purpose), {}};
  const auto arrival = [&](int shard, int tensor) {
    return e.arrivals[static_cast<std::size_t>(shard * ranks_.tensor.size + tensor)];
  };
  if (ranks_.shard.communicator != nullptr) {
    Slices here{e.received, {}};
    for (int shard = 0; shard < ranks_.shard.size; ++shard) {
      here.ranges.push_back(arrival(shard, ranks_.tensor.rank));
    }
    ranks_.shard.communicator->all_to_all({e.sent, e.to_shard}, here, communication, tag);
  }
  if (ranks_.tensor.communicator != nullptr) {
    Slices whole{e.received, {}};
    for (int tensor = 0; tensor < ranks_.tensor.size; ++tensor) {
      const Slices::Range first = arrival(0, tensor);
      const Slices::Range last = arrival(ranks_.shard.size - 1, tensor);
      whole.ranges.push_back({first.begin, last.begin + last.count - first.begin});
    }
    ranks_.tensor.communicator->all_gather(whole.of(ranks_.tensor.rank), whole, communication, tag);
  }
  device_.compute().wait(communication.record());
}

void SplitVocabulary::embed(const PassExchange& passes, const PassRows& pass,
                            const StoredWeight& embedding, View x) {
  route(passes);
  const std::int64_t width = size_.width;
  const Ranges from = times(routed_from_, width);
  const View received = rows_received_.view();
  const bool alone = ranks_.shard.communicator == nullptr;
  ops_.begin(routed_);
  if (const std::int64_t count = std::ssize(routed_.tokens); count > 0) {
    const View to =
        alone ? received.slice(from[static_cast<std::size_t>(ranks_.all.rank)].begin, count * width)
              : rows_sent_.slice(0, count * width);
    ops_.embed(embedding, to);
  }
  exchange({rows_sent_.view(), times(routed_to_, width), received, from, "embedding"});
  if (pass.count() > 0) {
    ops_.take_rows(RowList::receive_order, received.slice(0, pass.count() * width), width, x);
  }
  ops_.begin(pass);
}

void SplitVocabulary::gather_rows(const PassExchange& passes, View x) {
  head_x_ = x;
  if (ranks_.shard.communicator == nullptr) return;
  std::vector<std::int64_t> rows;
  for (int shard = 0; shard < ranks_.shard.size; ++shard) {
    rows.push_back(passes.of(shard).logit_rows * size_.width);
  }
  head_x_ = head_rows_.view();
  const Slices all{head_x_, adjacent(rows)};
  Stream& communication = device_.communication();
  communication.wait(device_.compute().record());
  ranks_.shard.communicator->all_gather(
      x.slice(0, rows[static_cast<std::size_t>(ranks_.shard.rank)]), all, communication,
      {"rows of the head", {}});
  rows_gathered_ = communication.record();
}

void SplitVocabulary::logits(const PassExchange& passes, const StoredWeight& head, View logits) {
  const int own = ranks_.all.rank;
  const bool alone = ranks_.shard.communicator == nullptr;
  const std::int64_t rows = passes.of(ranks_.shard.rank).logit_rows;
  std::vector<std::int64_t> to;
  for (int shard = 0; shard < ranks_.shard.size; ++shard) {
    to.push_back(passes.of(shard).logit_rows * columns(own));
  }
  std::vector<std::int64_t> from;
  for (int rank = 0; rank < ranks_.all.size; ++rank) from.push_back(rows * columns(rank));
  const Ranges arriving = arrivals(from);
  const View received = logits_received_.view();
  device_.compute().wait(rows_gathered_);
  if (columns(own) > 0) {
    const std::int64_t place = arriving[static_cast<std::size_t>(own)].begin;
    ops_.linear(head, passes.logit_rows(), head_x_, View(),
                alone ? received.slice(place, received.count() - place) : logits_sent_.view());
  }
  exchange({logits_sent_.view(), adjacent(to), received, arriving, "logits"});
  const std::int64_t vocabulary = tokens_.back().begin + tokens_.back().count;
  for (int rank = 0; rank < ranks_.all.size; ++rank) {
    const std::int64_t count = columns(rank);
    for (std::int64_t row = 0; row < rows && count > 0; ++row) {
      device_.kernels().convert(
          device_.compute(),
          received.slice(arriving[static_cast<std::size_t>(rank)].begin + row * count, count),
          logits.slice(row * vocabulary + tokens_[static_cast<std::size_t>(rank)].begin, count));
    }
  }
}

}  // namespace zero
