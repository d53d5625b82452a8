// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#include "partition/parameter_spec.h"

#include <fmt/ranges.h>

#include <algorithm>

#include "base/error.h"

namespace zero {

std::int64_t ParameterSpec::count() const {
  for (const std::int64_t dimension : shape) {
    ZERO_CHECK(
        dimension >= 0,
        "parameter \"{}\": shape [{}] has the negative dimension {}; dimensions are 0 or more",
        name, fmt::join(shape, ", "), dimension);
  }
  if (std::ranges::find(shape, 0) != shape.end()) return 0;  // whatever the others multiply to
  std::int64_t product = 1;
  for (const std::int64_t dimension : shape) {
    ZERO_CHECK(!__builtin_mul_overflow(product, dimension, &product),
               "parameter \"{}\": shape [{}] has more elements than 64 bits can count; "
               "split the parameter",
               name, fmt::join(shape, ", "));
  }
  return product;
}

}  // namespace zero
