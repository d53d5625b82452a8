// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstdint>

#include "base/mixed_bits.h"
#include "optim/optimizer.h"

namespace zero {

/// The keys of RandomBits (optim/small_moments.inc) for 2^32 elements of one parameter in one
/// step.
struct RoundingKeys {
  std::uint32_t first = 0;
  std::uint32_t second = 0;
};

/// `high` is the element's number divided by 2^32.
constexpr RoundingKeys rounding_keys(std::uint64_t parameter, std::int64_t step,
                                     std::int64_t high) {
  std::uint64_t key = split_mix(parameter);
  key = mixed_bits(key ^ split_mix(static_cast<std::uint64_t>(step)));
  key = mixed_bits(key + kGoldenGamma * static_cast<std::uint64_t>(high));
  return {static_cast<std::uint32_t>(key), static_cast<std::uint32_t>(key >> 32)};
}

/// Elements begin, begin + 1, ... of an update that are consecutive in the logical tensor.
struct RoundingRun {
  RoundingKeys keys;
  std::uint32_t element = 0;  ///< the low 32 bits of the first one's number
  std::int64_t begin = 0;
  std::int64_t count = 0;
};

/// Calls body(RoundingRun) for runs that cover elements [begin, begin + count) of an update.
template <typename Body>
void for_each_rounding_run(const LogicalElements& elements, std::int64_t step, std::int64_t begin,
                           std::int64_t count, Body&& body) {
  const std::int64_t end = begin + count;
  while (begin < end) {
    const std::int64_t element = elements.at(begin);
    const std::int64_t of_run = elements.run - begin % elements.run;
    const std::int64_t of_keys = (std::int64_t{1} << 32) - (element & 0xffffffff);
    const std::int64_t length = std::min({end - begin, of_run, of_keys});
    body(RoundingRun{rounding_keys(elements.parameter, step, element >> 32),
                     static_cast<std::uint32_t>(element), begin, length});
    begin += length;
  }
}

}  // namespace zero
