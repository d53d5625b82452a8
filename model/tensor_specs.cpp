// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#include "model/tensor_specs.h"

#include "architecture/head_split.h"

namespace zero {

ParameterSpec sliced_spec(ParameterSpec whole, const TensorRanges& mine, int ranks) {
  if (ranks == 1) return whole;
  TensorSlice slice{whole.shape, mine.dimension, mine.ranges};
  whole.shape = slice.local_shape();
  whole.slice = std::move(slice);
  return whole;
}

TensorSlice::Range even_share(std::string_view what, std::int64_t total,
                              const TensorParallel& tensor) {
  check_share(what, total, tensor.ranks());
  return even_range(total, tensor.rank(), tensor.ranks());
}

std::int64_t total_of(const std::vector<TensorSlice::Range>& ranges) {
  std::int64_t total = 0;
  for (const TensorSlice::Range& range : ranges) total += range.count;
  return total;
}

}  // namespace zero
