// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#include "partition/parameter_spec.h"

#include <algorithm>

#include "base/error.h"
#include "base/message_text.h"

namespace zero {

namespace {

std::int64_t elements_of(const std::string& name, const std::vector<std::int64_t>& shape) {
  for (const std::int64_t dimension : shape) {
    ZERO_CHECK(dimension >= 0,
               "parameter \"{}\": shape {} has the negative dimension {}; dimensions are 0 or more",
               name, shape_text(shape), dimension);
  }
  if (std::ranges::find(shape, 0) != shape.end()) return 0;  // even if the others overflow
  std::int64_t product = 1;
  for (const std::int64_t dimension : shape) {
    ZERO_CHECK(!__builtin_mul_overflow(product, dimension, &product),
               "parameter \"{}\": shape {} has more elements than 64 bits can count; "
               "split the parameter",
               name, shape_text(shape));
  }
  return product;
}

}  // namespace

std::int64_t ParameterSpec::count() const { return elements_of(name, shape); }
std::int64_t ParameterSpec::logical_count() const { return elements_of(name, logical_shape()); }

void ParameterSpec::for_each_run(std::int64_t begin, std::int64_t count,
                                 const TensorSlice::Visit& visit) const {
  if (slice) return slice->for_each_run(begin, count, visit);
  if (count > 0) visit({begin, begin, count, 0});
}

void ParameterSpec::for_each_run_of_logical(std::int64_t begin, std::int64_t count,
                                            const TensorSlice::Visit& visit) const {
  if (slice) return slice->for_each_run_of_logical(begin, count, visit);
  if (count > 0) visit({begin, begin, count, 0});
}

}  // namespace zero
