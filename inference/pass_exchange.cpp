// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#include "inference/pass_exchange.h"

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

}  // namespace zero
