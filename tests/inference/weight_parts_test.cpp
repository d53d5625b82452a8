// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include "architecture/decoder_parameters.h"
#include "tests/inference/rank_runs.h"

namespace zero::testing {
namespace {

TEST(WeightCuts, OfWholeGroupsAddUpToTheWeight) {
  const auto device = planning::open();
  const auto ops = make_inference_ops(*device);
  for (const auto& [dtype, format] : kKinds) {
    const WeightShape shape{300, 200, WeightLayout::out_in, dtype, format};
    const WeightCut cut = ops->weight_cut(shape);
    std::int64_t group = 0;
    for (const std::int64_t bytes : cut.part_bytes) group += bytes;
    EXPECT_EQ(ops->weight_bytes(shape), div_ceil(shape.out, cut.columns) * group);
  }
}

TEST(TensorParts, ReadRowsAndColumnsInOrder) {
  // A tensor (6, 10) whose elements are their indices.
  const auto read = [](std::int64_t begin, std::span<float> values) {
    for (std::size_t i = 0; i < values.size(); ++i) {
      values[i] = static_cast<float>(begin + static_cast<std::int64_t>(i));
    }
  };
  const TensorPart part{{{4, 2, 0}, {1, 1, 0}}, {{7, 2, 0}, {0, 1, 0}}, 10};
  std::vector<float> values(6);
  part.read(read, 1, values);
  EXPECT_EQ(values, (std::vector<float>{57, 58, 50, 17, 18, 10}));
  const TensorPart rows{{{4, 2, 0}, {1, 1, 0}}, {{0, 10, 0}}, 10};
  values.resize(20);
  rows.read(read, 1, values);
  EXPECT_EQ(values[0], 50);
  EXPECT_EQ(values[10], 10);
}

}  // namespace
}  // namespace zero::testing
