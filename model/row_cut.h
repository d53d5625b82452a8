// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <vector>

#include "collectives/slices.h"

namespace zero {

/// The partition of a micro-batch's rows into chunks, and of each chunk into shares of the ranks of
/// a tensor group: both even, the longer parts first. A rank's own rows are its shares of all
/// chunks, one after another, so that every rank has work in every chunk. Pure arithmetic.
class RowCut {
 public:
  /// The number of chunks asked for, or fewer if a rank would have no row of some chunk.
  RowCut(std::int64_t rows, int ranks, int chunks);

  std::int64_t rows() const { return rows_; }
  int ranks() const { return ranks_; }
  int chunks() const { return chunks_; }
  Slices::Range chunk(int chunk) const;            ///< of all rows
  Slices::Range share(int chunk, int rank) const;  ///< of all rows
  Slices::Range own(int chunk, int rank) const;    ///< that share's place in the rank's own rows
  std::int64_t own_rows(int rank) const;
  /// A chunk's part of some rows.
  struct Piece {
    int chunk = 0;
    Slices::Range rows;
    bool ends_chunk = false;
  };
  /// The parts of `rows`, in order.
  std::vector<Piece> pieces(const Slices::Range& rows) const;
  /// The distinct lengths of chunks, one or two.
  std::vector<std::int64_t> chunk_rows() const;

 private:
  std::int64_t rows_;
  int ranks_;
  int chunks_;
};

}  // namespace zero
