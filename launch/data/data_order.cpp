// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#include "launch/data/data_order.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/checked_math.h"
#include "base/mixed_bits.h"

namespace zero {
namespace {

/// Whether a pass at `position` has the sequences of `order` in its order.
bool same_pass(const DataPosition& position, const DataOrder& order, std::int64_t length) {
  if (!position.shuffle && !order.shuffle) return true;
  return position.shuffle == order.shuffle && position.seed == order.seed &&
         position.of == order.sequences && position.length == length;
}

}  // namespace

Permutation::Permutation(std::int64_t count, std::uint64_t seed, std::uint64_t epoch)
    : count_(count) {
  ZERO_CHECK(count > 0, "cannot permute {} sequences", count);
  while ((std::uint64_t{1} << (2 * half_bits_)) < static_cast<std::uint64_t>(count)) ++half_bits_;
  std::uint64_t state = split_mix(seed) ^ split_mix(~epoch);
  for (std::uint64_t& key : keys_) key = state = split_mix(state);
}

std::uint64_t Permutation::encrypt(std::uint64_t value) const {
  const std::uint64_t mask = (std::uint64_t{1} << half_bits_) - 1;
  std::uint64_t left = value >> half_bits_;
  std::uint64_t right = value & mask;
  for (const std::uint64_t key : keys_) {
    const std::uint64_t next = left ^ (split_mix(right ^ key) & mask);
    left = right;
    right = next;
  }
  return (left << half_bits_) | right;
}

std::int64_t Permutation::operator()(std::int64_t index) const {
  ZERO_CHECK(index >= 0 && index < count_, "index {} is outside a permutation of {}", index,
             count_);
  auto value = static_cast<std::uint64_t>(index);
  do {
    value = encrypt(value);
  } while (value >= static_cast<std::uint64_t>(count_));
  return static_cast<std::int64_t>(value);
}

std::int64_t DataOrder::sequence(std::int64_t step, std::int64_t micro_batch,
                                 std::int64_t row) const {
  const std::int64_t flat = consumed(step) + micro_batch * rows + row;
  const std::int64_t place = flat % sequences;
  if (!shuffle) return place;
  return Permutation(sequences, seed, static_cast<std::uint64_t>(flat / sequences))(place);
}

std::vector<std::int64_t> DataOrder::sequences_of(std::int64_t step,
                                                  std::int64_t micro_batch) const {
  std::vector<std::int64_t> taken(static_cast<std::size_t>(rows));
  for (std::int64_t row = 0; row < rows; ++row) {
    taken[static_cast<std::size_t>(row)] = sequence(step, micro_batch, row);
  }
  return taken;
}

DataPosition position_behind(const DataOrder& order, std::int64_t length, std::int64_t consumed) {
  return {.epoch = consumed / order.sequences,
          .sequences = consumed % order.sequences,
          .of = order.sequences,
          .length = length,
          .shuffle = order.shuffle,
          .seed = order.seed};
}

std::int64_t consumed_at(const DataPosition& position, const DataOrder& order,
                         std::int64_t length) {
  const std::int64_t before = checked_mul(position.epoch, order.sequences);
  if (!same_pass(position, order, length)) {
    return position.sequences > 0 ? before + order.sequences : before;
  }
  const std::int64_t tokens = checked_mul(position.sequences, position.length);
  const std::int64_t whole = tokens / length + (tokens % length > 0 ? 1 : 0);
  return before + std::min(whole, order.sequences);
}

std::string going_on_text(const DataPosition& position, const DataOrder& order,
                          std::int64_t consumed, std::int64_t batch) {
  const std::int64_t epoch = consumed / order.sequences;
  const std::int64_t first = consumed % order.sequences;
  const std::int64_t last = first + batch - 1;
  std::string text;
  if (epoch > position.epoch && first == 0 && position.sequences > 0 &&
      (position.shuffle || order.shuffle)) {
    text = fmt::format(
        "epoch {} ends after {} of its {} sequences, because another data.sequence_length, "
        "data.shuffle, run.seed or other data give it another order; ",
        position.epoch, position.sequences, position.of);
  }
  return fmt::format(
      "data.train: the run goes on after the {} sequences of {} tokens that were read in epoch "
      "{}: {}the next step reads {} {} to {} of {} in epoch {}{}",
      position.sequences, position.length, position.epoch, text,
      order.shuffle ? "the shuffled sequences" : "sequences", first,
      std::min(last, order.sequences - 1), order.sequences, epoch,
      last >= order.sequences ? ", then the first of the next epoch" : "");
}

}  // namespace zero
