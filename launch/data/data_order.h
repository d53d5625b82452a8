// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <vector>

namespace zero {

/// A seeded permutation of 0 .. count - 1 in constant memory: a balanced Feistel network of four
/// rounds over the next power of four, iterated until the result is below count (cycle walking,
/// Black & Rogaway, "Ciphers with Arbitrary Finite Domains", 2002): at most four times on average.
class Permutation {
 public:
  Permutation(std::int64_t count, std::uint64_t seed, std::uint64_t epoch);
  std::int64_t operator()(std::int64_t index) const;

 private:
  std::uint64_t encrypt(std::uint64_t value) const;

  std::int64_t count_;
  int half_bits_ = 1;
  std::array<std::uint64_t, 4> keys_{};
};

/// Maps each row of each micro-batch to a sequence. Pure arithmetic: the same for every world, and
/// a resumed run continues exactly.
struct DataOrder {
  std::int64_t sequences = 0;      ///< S: whole sequences in the data
  std::int64_t micro_batches = 1;  ///< M: micro-batches of a step, over all ranks
  std::int64_t rows = 1;           ///< B: sequences of a micro-batch
  bool shuffle = false;
  std::uint64_t seed = 0;
  // A run that was resumed, perhaps with another batch:
  std::int64_t from_step = 0;  ///< the steps before it had settings of their own
  std::int64_t from = 0;       ///< sequences that count as read by those steps

  /// Sequences that are read before step `step` (from 0; at least from_step).
  std::int64_t consumed(std::int64_t step) const {
    return from + (step - from_step) * micro_batches * rows;
  }
  /// The sequence of row `row` of micro-batch `micro_batch` of step `step`: flat index
  /// g = consumed(step) + micro_batch * B + row; epoch g / S, position g mod S within the epoch.
  std::int64_t sequence(std::int64_t step, std::int64_t micro_batch, std::int64_t row) const;
  /// Those of all rows of a micro-batch.
  std::vector<std::int64_t> sequences_of(std::int64_t step, std::int64_t micro_batch) const;
};

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
