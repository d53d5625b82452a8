// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#include "partition/tensor_slice.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <functional>
#include <numeric>

#include "base/error.h"

namespace zero {

void TensorSlice::check(std::string_view parameter) const {
  ZERO_CHECK(dimension >= 0 && dimension < static_cast<int>(shape.size()),
             "parameter \"{}\" is sliced along dimension {} of [{}]; expected 0 to {}", parameter,
             dimension, fmt::join(shape, ", "), static_cast<int>(shape.size()) - 1);
  const std::int64_t length = shape[static_cast<std::size_t>(dimension)];
  std::vector<Range> sorted = ranges;
  std::ranges::sort(sorted, {}, &Range::begin);
  std::int64_t end = 0;
  for (const Range& range : sorted) {
    ZERO_CHECK(range.count >= 0 && range.copy >= 0 && range.begin >= end &&
                   range.begin <= length - range.count,
               "parameter \"{}\": the range [{}, {}) (copy {}) along dimension {} of [{}] lies "
               "outside it, or meets another",
               parameter, range.begin, range.begin + range.count, range.copy, dimension,
               fmt::join(shape, ", "));
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

// Seen along the dimension both tensors are (outer, length, inner): a range is one run of each
// outer index. Runs that touch in both tensors are one.
void TensorSlice::for_each_run(std::int64_t begin, std::int64_t count,
                               const std::function<void(const Run&)>& visit) const {
  const std::int64_t inner = std::accumulate(shape.begin() + dimension + 1, shape.end(),
                                             std::int64_t{1}, std::multiplies<>());
  const std::int64_t length = shape[static_cast<std::size_t>(dimension)] * inner;
  const std::int64_t local_length = local_shape()[static_cast<std::size_t>(dimension)] * inner;
  const std::int64_t end = begin + count;
  Run run;
  const auto add = [&](const Run& next) {
    if (run.count > 0 && next.copy == run.copy && next.local == run.local + run.count &&
        next.logical == run.logical + run.count) {
      run.count += next.count;
      return;
    }
    if (run.count > 0) visit(run);
    run = next;
  };
  for (std::int64_t outer = local_length == 0 ? 0 : begin / local_length;
       outer * local_length < end && local_length > 0; ++outer) {
    std::int64_t at = outer * local_length;
    for (const Range& range : ranges) {
      const std::int64_t low = std::max(at, begin);
      const std::int64_t high = std::min(at + range.count * inner, end);
      if (low < high)
        add({low, outer * length + range.begin * inner + low - at, high - low, range.copy});
      at += range.count * inner;
    }
  }
  if (run.count > 0) visit(run);
}

TensorSlice::Range even_range(std::int64_t total, int rank, int ranks) {
  const std::int64_t each = total / ranks;
  const std::int64_t longer = total % ranks;
  return {each * rank + std::min<std::int64_t>(rank, longer), each + (rank < longer ? 1 : 0), 0};
}

}  // namespace zero
