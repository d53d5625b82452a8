// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstdint>
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

}  // namespace zero
