// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>

#include "launch/data/data_order.h"

namespace zero {

/// Where a run is in its training data, as checkpoints keep it: independent of the steps done and
/// of their batch. The first four members say what was read, the others in which order.
struct DataPosition {
  std::int64_t epoch = 0;      ///< whole passes over the data before this one
  std::int64_t sequences = 0;  ///< read in this pass
  std::int64_t of = 0;         ///< sequences of a pass
  std::int64_t length = 0;     ///< tokens of a sequence
  bool shuffle = false;
  std::uint64_t seed = 0;
  bool operator==(const DataPosition&) const = default;
};

/// The position of a run over sequences of `length` tokens behind the first `consumed` sequences of
/// `order`.
DataPosition position_behind(const DataOrder& order, std::int64_t length, std::int64_t consumed);

/// How many sequences of `order`, of `length` tokens, count as read at `position`, which may be one
/// of other data, lengths and orders: the run goes on after all of them. Unshuffled, it goes on
/// with the first whole sequence behind the tokens read. If either order is shuffled and they
/// differ, what was read is no beginning of the new pass: the run begins the next epoch.
std::int64_t consumed_at(const DataPosition& position, const DataOrder& order, std::int64_t length);

/// For users: where a run of `batch` sequences a step goes on that was at `position` and has
/// `consumed` sequences of `order` behind it.
std::string going_on_text(const DataPosition& position, const DataOrder& order,
                          std::int64_t consumed, std::int64_t batch);

}  // namespace zero
