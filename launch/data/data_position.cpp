// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#include "launch/data/data_position.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/checked_math.h"

namespace zero {
namespace {

/// Whether a pass at `position` has the sequences of `order` in its order.
bool same_pass(const DataPosition& position, const DataOrder& order, std::int64_t length) {
  if (!position.shuffle && !order.shuffle) return true;
  return position.shuffle == order.shuffle && position.seed == order.seed &&
         position.of == order.sequences && position.length == length;
}

}  // namespace

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
