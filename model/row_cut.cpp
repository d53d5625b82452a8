// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#include "model/row_cut.h"

#include <algorithm>

#include "partition/tensor_slice.h"

namespace zero {
namespace {

Slices::Range even(std::int64_t total, int part, int parts) {
  const TensorSlice::Range range = even_range(total, part, parts);
  return {range.begin, range.count};
}

}  // namespace

RowCut::RowCut(std::int64_t rows, int ranks, int chunks)
    : rows_(rows),
      ranks_(ranks),
      chunks_(static_cast<int>(
          std::clamp<std::int64_t>(rows / ranks, 1, std::max<std::int64_t>(1, chunks)))) {}

Slices::Range RowCut::chunk(int chunk) const { return even(rows_, chunk, chunks_); }

Slices::Range RowCut::share(int chunk, int rank) const {
  const Slices::Range whole = this->chunk(chunk);
  const Slices::Range part = even(whole.count, rank, ranks_);
  return {whole.begin + part.begin, part.count};
}

Slices::Range RowCut::own(int chunk, int rank) const {
  std::int64_t begin = 0;
  for (int before = 0; before < chunk; ++before) begin += share(before, rank).count;
  return {begin, share(chunk, rank).count};
}

std::int64_t RowCut::own_rows(int rank) const {
  const Slices::Range last = own(chunks_ - 1, rank);
  return last.begin + last.count;
}

std::vector<RowCut::Piece> RowCut::pieces(const Slices::Range& rows) const {
  std::vector<Piece> pieces;
  for (int k = 0; k < chunks_; ++k) {
    const Slices::Range whole = chunk(k);
    const std::int64_t begin = std::max(whole.begin, rows.begin);
    const std::int64_t end = std::min(whole.begin + whole.count, rows.begin + rows.count);
    if (begin < end) pieces.push_back({k, {begin, end - begin}, end == whole.begin + whole.count});
  }
  return pieces;
}

std::vector<std::int64_t> RowCut::chunk_rows() const {
  std::vector<std::int64_t> lengths{chunk(0).count};
  if (const std::int64_t last = chunk(chunks_ - 1).count; last != lengths.front()) {
    lengths.push_back(last);
  }
  return lengths;
}

}  // namespace zero
