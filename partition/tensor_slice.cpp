// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#include "partition/tensor_slice.h"

#include <algorithm>
#include <functional>
#include <numeric>

#include "base/error.h"
#include "base/message_text.h"

namespace zero {

void TensorSlice::check(std::string_view parameter) const {
  ZERO_CHECK(dimension >= 0 && dimension < static_cast<int>(shape.size()),
             "parameter \"{}\" is sliced along dimension {} of {}; expected 0 to {}", parameter,
             dimension, shape_text(shape), static_cast<int>(shape.size()) - 1);
  const std::int64_t length = shape[static_cast<std::size_t>(dimension)];
  std::vector<Range> sorted = ranges;
  std::ranges::sort(sorted, {}, &Range::begin);
  std::int64_t end = 0;
  for (const Range& range : sorted) {
    ZERO_CHECK(range.count >= 0 && range.copy >= 0 && range.begin >= end &&
                   range.begin <= length - range.count,
               "parameter \"{}\": the range [{}, {}) (copy {}) along dimension {} of {} lies "
               "outside it, or meets another",
               parameter, range.begin, range.begin + range.count, range.copy, dimension,
               shape_text(shape));
    end = range.begin + range.count;
  }
}

std::vector<std::int64_t> TensorSlice::local_shape() const {
  std::vector<std::int64_t> local = shape;
  std::int64_t& length = local[static_cast<std::size_t>(dimension)];
  length = 0;
  for (const Range& range : ranges) length += range.count;
  return local;
}

bool TensorSlice::in_blocks(std::int64_t begin, std::int64_t end, std::int64_t block) const {
  const auto size = [](auto first, auto last) {
    return std::accumulate(first, last, std::int64_t{1}, std::multiplies<>());
  };
  const auto at = shape.begin() + dimension;
  const std::int64_t inner = size(at + 1, shape.end());
  const bool many = size(shape.begin(), at) > 1;
  std::int64_t local = 0;  // elements of an outer index
  for (const Range& range : ranges) local += range.count * inner;
  std::int64_t before = 0;
  for (const Range& range : ranges) {
    const bool holds = range.begin <= begin && end <= range.begin + range.count;
    const std::int64_t from = before + (begin - range.begin) * inner;
    const std::int64_t to = before + (end - range.begin) * inner;
    const bool ends = to % block == 0 || (to == local && !many);
    if (holds && !(from % block == 0 && ends)) return false;
    before += range.count * inner;
  }
  return !many || local % block == 0;
}

bool TensorSlice::copies_in_blocks(std::int64_t block) const {
  return std::ranges::all_of(ranges, [&](const Range& range) {
    return range.holders == 1 || in_blocks(range.begin, range.begin + range.count, block);
  });
}

namespace {

/// Visits runs given in order; those that touch in both tensors as one.
class JoinedRuns {
 public:
  explicit JoinedRuns(const TensorSlice::Visit& visit) : visit_(visit) {}
  void add(const TensorSlice::Run& next) {
    if (run_.count > 0 && next.copy == run_.copy && next.local == run_.local + run_.count &&
        next.logical == run_.logical + run_.count) {
      run_.count += next.count;
      return;
    }
    finish();
    run_ = next;
  }
  void finish() {
    if (run_.count > 0) visit_(run_);
  }

 private:
  const TensorSlice::Visit& visit_;
  TensorSlice::Run run_;
};

/// A slice along its dimension, in elements. Both tensors are (outer, length, inner) there: a range
/// is one run of each outer index.
struct Rows {
  explicit Rows(const TensorSlice& slice) {
    const std::int64_t inner =
        std::accumulate(slice.shape.begin() + slice.dimension + 1, slice.shape.end(),
                        std::int64_t{1}, std::multiplies<>());
    logical = slice.shape[static_cast<std::size_t>(slice.dimension)] * inner;
    for (const TensorSlice::Range& range : slice.ranges) {
      ranges.push_back({local, range.begin * inner, range.count * inner, range.copy});
      local += range.count * inner;
    }
  }
  std::int64_t logical = 0;              ///< elements of an outer index in the logical tensor
  std::int64_t local = 0;                ///< in the local tensor
  std::vector<TensorSlice::Run> ranges;  ///< of an outer index, in local order
};

struct Interval {
  std::int64_t begin;
  std::int64_t end;
};

/// Visits the runs of the elements `asked` of one of the two tensors: of that whose outer indices
/// have `length` elements and whose part of a run begins at `first`. Ranges must be in that
/// tensor's order.
void visit_runs(const Rows& rows, std::int64_t length, std::int64_t TensorSlice::Run::*first,
                const Interval& asked, const TensorSlice::Visit& visit) {
  if (rows.local == 0) return;
  JoinedRuns joined(visit);
  for (std::int64_t outer = asked.begin / length; outer * length < asked.end; ++outer) {
    for (const TensorSlice::Run& range : rows.ranges) {
      const std::int64_t at = outer * length + range.*first;
      const std::int64_t low = std::max(at, asked.begin);
      const std::int64_t high = std::min(at + range.count, asked.end);
      if (low >= high) continue;
      joined.add({outer * rows.local + range.local + low - at,
                  outer * rows.logical + range.logical + low - at, high - low, range.copy});
    }
  }
  joined.finish();
}

}  // namespace

void TensorSlice::for_each_run(std::int64_t begin, std::int64_t count, const Visit& visit) const {
  const Rows rows(*this);
  visit_runs(rows, rows.local, &Run::local, {begin, begin + count}, visit);
}

void TensorSlice::for_each_run_of_logical(std::int64_t begin, std::int64_t count,
                                          const Visit& visit) const {
  Rows rows(*this);
  std::ranges::sort(rows.ranges, {}, &Run::logical);
  visit_runs(rows, rows.logical, &Run::logical, {begin, begin + count}, visit);
}

TensorSlice::Range even_range(std::int64_t total, int rank, int ranks) {
  const std::int64_t each = total / ranks;
  const std::int64_t longer = total % ranks;
  return {each * rank + std::min<std::int64_t>(rank, longer), each + (rank < longer ? 1 : 0), 0};
}

}  // namespace zero
