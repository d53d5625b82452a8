// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <fmt/format.h>
#include <gtest/gtest.h>
#include <rapidcheck.h>

#include <string>
#include <vector>

#include "partition/flat_layout.h"
#include "tests/errors.h"

namespace zero::testing {

inline const std::vector<int> kWorlds = {1, 2, 3, 5, 7, 8, 64, 1000};
inline const std::vector<std::int64_t> kThresholds = {0, 1, 64, 1000, 1'000'000};

/// One-dimensional parameters p0, p1, ... of the given sizes.
inline std::vector<ParameterSpec> unit_of(const std::vector<std::int64_t>& sizes) {
  std::vector<ParameterSpec> parameters;
  for (std::size_t i = 0; i < sizes.size(); ++i) {
    parameters.push_back({.name = fmt::format("p{}", i), .shape = {sizes[i]}});
  }
  return parameters;
}

/// Units with zero-size, odd-size and scalar parameters, in awkward orders.
inline std::vector<std::vector<ParameterSpec>> awkward_units() {
  std::vector<std::vector<ParameterSpec>> units = {
      {},
      unit_of({0}),
      unit_of({0, 0, 0}),
      unit_of({1}),
      unit_of({63, 64, 65}),
      unit_of({0, 7, 0, 4097, 0, 1, 129, 0}),
      unit_of({1001, 3, 64, 999, 64, 127}),
  };
  units.push_back({{.name = "scalar", .shape = {}},
                   {.name = "none", .shape = {3, 0, 5}},
                   {.name = "matrix", .shape = {37, 53}},
                   {.name = "bias", .shape = {37}}});
  return units;
}

/// Parameter sizes, worlds and thresholds for properties.
inline std::vector<std::int64_t> any_sizes() {
  return *rc::gen::container<std::vector<std::int64_t>>(rc::gen::weightedOneOf<std::int64_t>({
      {1, rc::gen::just<std::int64_t>(0)},
      {3, rc::gen::inRange<std::int64_t>(1, 200)},
      {2, rc::gen::inRange<std::int64_t>(200, 5000)},
  }));
}
inline int any_world() { return *rc::gen::elementOf(kWorlds); }
inline std::int64_t any_threshold() { return *rc::gen::elementOf(kThresholds); }

}  // namespace zero::testing
