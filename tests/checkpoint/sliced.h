// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <utility>

#include "collectives/mesh.h"
#include "partition/parameter_spec.h"

namespace zero::testing {

/// A parameter sliced along `dimension`: its indices in as many equal stretches as `stretches`, and
/// each of those over the ranks as evenly as can be. Those after the first are two heads of keys or
/// values, which ranks share where they are more than two.
inline ParameterSpec sliced(ParameterSpec whole, const Mesh& mesh, int dimension,
                            int stretches = 1) {
  const int rank = mesh.index(Axis::tensor);
  const int ranks = mesh.size(Axis::tensor);
  if (ranks == 1) return whole;
  TensorSlice slice{whole.shape, dimension, {}};
  const std::int64_t length = whole.shape[static_cast<std::size_t>(dimension)] / stretches;
  for (int stretch = 0; stretch < stretches; ++stretch) {
    const int each = stretch > 0 && ranks > 2 ? ranks / 2 : 1;  // ranks of one head
    TensorSlice::Range range = even_range(length, rank / each, ranks / each);
    slice.ranges.push_back({stretch * length + range.begin, range.count, rank % each});
  }
  whole.shape = slice.local_shape();
  whole.slice = slice;
  return whole;
}

}  // namespace zero::testing
