// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "model/tensor_parallel.h"
#include "partition/parameter_spec.h"

namespace zero {

/// The indices along one dimension that a rank holds.
struct TensorRanges {
  int dimension = 0;
  std::vector<TensorSlice::Range> ranges;
};

/// The part of the logical tensor `whole` given by `mine`; all of it if the group is one rank.
ParameterSpec sliced_spec(ParameterSpec whole, const TensorRanges& mine, int ranks);

/// This rank's even share of the `total` items named `what`. Throws zero::Error if a rank would
/// have none.
TensorSlice::Range even_share(std::string_view what, std::int64_t total,
                              const TensorParallel& tensor);

std::int64_t total_of(const std::vector<TensorSlice::Range>& ranges);

}  // namespace zero
