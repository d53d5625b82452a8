// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <vector>

#include "collectives/slices.h"

namespace zero {

/// How the rows of a micro-batch lie over chunks and over the ranks of a tensor group: a chunk is
/// an even part of the rows, a share an even part of a chunk, the longer parts first. A rank's own
/// rows are its shares of all chunks, one after the other, so that every chunk keeps every rank
/// busy. Pure arithmetic.
class RowCut {
 public:
  /// As many chunks as asked for, or fewer where there are too few rows for one a rank and chunk.
  RowCut(std::int64_t rows, int ranks, int chunks);

  std::int64_t rows() const { return rows_; }
  int ranks() const { return ranks_; }
  int chunks() const { return chunks_; }
  Slices::Range chunk(int chunk) const;            ///< of all rows
  Slices::Range share(int chunk, int rank) const;  ///< of all rows
  Slices::Range own(int chunk, int rank) const;    ///< where that share lies in the rank's own rows
  std::int64_t own_rows(int rank) const;
  /// A chunk's part of some rows.
  struct Piece {
    int chunk = 0;
    Slices::Range rows;
    bool ends_chunk = false;
  };
  /// The parts of `rows`, in order.
  std::vector<Piece> pieces(const Slices::Range& rows) const;
  /// The different lengths of chunks, one or two.
  std::vector<std::int64_t> chunk_rows() const;

 private:
  std::int64_t rows_;
  int ranks_;
  int chunks_;
};

}  // namespace zero
