// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#include "partition/tensor_slice.h"
#include "tests/partition/units.h"

namespace zero::testing {
namespace {

// The logical element of each local element, index by index: what runs must say.
std::vector<std::int64_t> elements_of(const TensorSlice& slice) {
  std::int64_t inner = 1;
  for (std::size_t i = static_cast<std::size_t>(slice.dimension) + 1; i < slice.shape.size(); ++i) {
    inner *= slice.shape[i];
  }
  std::int64_t outer = 1;
  for (int i = 0; i < slice.dimension; ++i) outer *= slice.shape[static_cast<std::size_t>(i)];
  std::vector<std::int64_t> elements;
  for (std::int64_t o = 0; o < outer; ++o) {
    for (const auto& range : slice.ranges) {
      for (std::int64_t i = range.begin * inner; i < (range.begin + range.count) * inner; ++i) {
        elements.push_back(o * slice.shape[static_cast<std::size_t>(slice.dimension)] * inner + i);
      }
    }
  }
  return elements;
}

std::vector<std::int64_t> elements_by_runs(const TensorSlice& slice, std::int64_t begin,
                                           std::int64_t count) {
  std::vector<std::int64_t> elements;
  slice.for_each_run(begin, count, [&](const TensorSlice::Run& run) {
    EXPECT_EQ(run.local, begin + static_cast<std::int64_t>(elements.size()));
    EXPECT_GT(run.count, 0);
    for (std::int64_t i = 0; i < run.count; ++i) elements.push_back(run.logical + i);
  });
  return elements;
}

/// The local element of each logical one, or -1: what runs of a logical range must say.
std::vector<std::int64_t> local_elements_of(const TensorSlice& slice) {
  ParameterSpec whole;
  whole.shape = slice.shape;
  std::vector<std::int64_t> elements(static_cast<std::size_t>(whole.count()), -1);
  const std::vector<std::int64_t> logical = elements_of(slice);
  for (std::size_t i = 0; i < logical.size(); ++i)
    elements[static_cast<std::size_t>(logical[i])] = static_cast<std::int64_t>(i);
  return elements;
}

std::vector<std::int64_t> local_elements_by_runs(const TensorSlice& slice, std::int64_t begin,
                                                 std::int64_t count) {
  std::vector<std::int64_t> elements(static_cast<std::size_t>(count), -1);
  std::int64_t end = begin;
  slice.for_each_run_of_logical(begin, count, [&](const TensorSlice::Run& run) {
    EXPECT_GE(run.logical, end);
    EXPECT_GT(run.count, 0);
    end = run.logical + run.count;
    EXPECT_LE(end, begin + count);
    for (std::int64_t i = 0; i < run.count; ++i)
      elements.at(static_cast<std::size_t>(run.logical - begin + i)) = run.local + i;
  });
  return elements;
}

std::int64_t local_count(const TensorSlice& slice) {
  ParameterSpec spec;
  spec.shape = slice.local_shape();
  return spec.count();
}

TEST(TensorSlice, RunsAreTheElementsOfTheRangesForAnyPartOfTheLocalTensor) {
  const TensorSlice columns{{3, 10}, 1, {{1, 2}, {4, 1}, {8, 2}}};
  const TensorSlice rows{{10, 3}, 0, {{1, 2}, {4, 1}, {8, 2}}};
  const TensorSlice middle{{2, 7, 3}, 1, {{5, 2}, {0, 1}}};
  const TensorSlice vector{{7}, 0, {{2, 3}}};
  const TensorSlice nothing{{7, 2}, 0, {{3, 0}}};
  for (const TensorSlice& slice : {columns, rows, middle, vector, nothing}) {
    slice.check("weight");
    const std::vector<std::int64_t> all = elements_of(slice);
    EXPECT_EQ(local_count(slice), static_cast<std::int64_t>(all.size()));
    for (std::size_t begin = 0; begin <= all.size(); ++begin) {
      for (std::size_t end = begin; end <= all.size(); ++end) {
        const std::vector<std::int64_t> expected(all.begin() + static_cast<std::ptrdiff_t>(begin),
                                                 all.begin() + static_cast<std::ptrdiff_t>(end));
        EXPECT_EQ(elements_by_runs(slice, static_cast<std::int64_t>(begin),
                                   static_cast<std::int64_t>(end - begin)),
                  expected);
      }
    }
  }
}

TEST(TensorSlice, RunsOfALogicalRangeAreTheLocalElementsInIt) {
  const TensorSlice columns{{3, 10}, 1, {{1, 2}, {4, 1}, {8, 2}}};
  const TensorSlice rows{{10, 3}, 0, {{1, 2}, {4, 1}, {8, 2}}};
  const TensorSlice middle{{2, 7, 3}, 1, {{5, 2}, {0, 1}}};
  const TensorSlice vector{{7}, 0, {{2, 3}}};
  const TensorSlice nothing{{7, 2}, 0, {{3, 0}}};
  const TensorSlice empty{{7, 0}, 0, {{3, 2}}};
  for (const TensorSlice& slice : {columns, rows, middle, vector, nothing, empty}) {
    const std::vector<std::int64_t> all = local_elements_of(slice);
    for (std::size_t begin = 0; begin <= all.size(); ++begin) {
      for (std::size_t end = begin; end <= all.size(); ++end) {
        const std::vector<std::int64_t> expected(all.begin() + static_cast<std::ptrdiff_t>(begin),
                                                 all.begin() + static_cast<std::ptrdiff_t>(end));
        EXPECT_EQ(local_elements_by_runs(slice, static_cast<std::int64_t>(begin),
                                         static_cast<std::int64_t>(end - begin)),
                  expected);
      }
    }
  }
}

TEST(TensorSlice, RunsOfASmallLogicalRangeAreFoundWithoutAWalk) {
  // A walk over the rows before the range would take minutes.
  const std::int64_t rows = std::int64_t{1} << 40;
  const TensorSlice slice{{rows, 8}, 1, {{2, 3}}};
  std::vector<std::int64_t> locals;
  slice.for_each_run_of_logical((rows - 2) * 8, 16,
                                [&](const TensorSlice::Run& run) { locals.push_back(run.local); });
  EXPECT_EQ(locals, (std::vector<std::int64_t>{(rows - 2) * 3, (rows - 1) * 3}));
}

TEST(TensorSlice, RangesThatTouchAreOneRunUnlessTheyAreDifferentCopies) {
  const auto runs = [](const TensorSlice& slice) {
    std::vector<std::int64_t> counts;
    slice.for_each_run(0, local_count(slice),
                       [&](const TensorSlice::Run& run) { counts.push_back(run.count); });
    return counts;
  };
  EXPECT_EQ(runs({{4, 5}, 0, {{0, 1}, {1, 2}}}), std::vector<std::int64_t>{15});
  EXPECT_EQ(runs({{4, 5}, 1, {{0, 5}}}), std::vector<std::int64_t>{20});
  EXPECT_EQ(runs({{4, 5}, 0, {{0, 1, 0}, {1, 2, 1}}}), (std::vector<std::int64_t>{5, 10}));
}

TEST(TensorSlice, LocalShapeHasTheRangesTogether) {
  EXPECT_EQ((TensorSlice{{3, 10}, 1, {{1, 2}, {4, 1}}}.local_shape()),
            (std::vector<std::int64_t>{3, 3}));
  EXPECT_EQ((TensorSlice{{7, 2}, 0, {}}.local_shape()), (std::vector<std::int64_t>{0, 2}));
}

TEST(TensorSlice, EvenRangesCoverTheTotalAndDifferByOneAtMost) {
  for (const std::int64_t total : {0, 2, 12, 50257}) {
    for (int ranks = 1; ranks <= 8; ++ranks) {
      std::int64_t end = 0;
      for (int rank = 0; rank < ranks; ++rank) {
        const TensorSlice::Range range = even_range(total, rank, ranks);
        EXPECT_EQ(range.begin, end);
        EXPECT_GE(range.count, total / ranks);
        EXPECT_LE(range.count, (total + ranks - 1) / ranks);
        end += range.count;
      }
      EXPECT_EQ(end, total);
    }
  }
}

TEST(TensorSlice, WhatLiesOutsideOrOverlapsIsNamed) {
  EXPECT_EQ(error_of([] {
              TensorSlice{{4, 6}, 2, {}}.check("w");
            }),
            "parameter \"w\" is sliced along dimension 2 of [4, 6]; expected 0 to 1");
  EXPECT_EQ(error_of([] {
              TensorSlice{{4, 6}, 1, {{5, 2}}}.check("w");
            }),
            "parameter \"w\": the range [5, 7) (copy 0) along dimension 1 of [4, 6] lies outside "
            "it, or meets another");
  EXPECT_NE(error_of([] { TensorSlice{{4, 6}, 0, {{2, 2}, {1, 2}}}.check("w"); }), "no error");
}

// Two heads of queries, one of keys, one of values, each of 2 x 6 elements; two ranks hold the
// keys.
TEST(TensorSlice, CopiesAreInBlocksOfMomentsOrNot) {
  const TensorSlice held{{16, 6}, 0, {{0, 4, 0}, {8, 2, 0, 2}, {12, 2, 0, 2}}};
  EXPECT_TRUE(held.copies_in_blocks(12));
  EXPECT_TRUE(held.copies_in_blocks(6));
  EXPECT_FALSE(held.copies_in_blocks(8)) << "the values begin at 36";
  EXPECT_FALSE(held.copies_in_blocks(24)) << "the keys end at 36";
  EXPECT_TRUE(held.in_blocks(12, 14, 36)) << "the local tensor ends with them";
  const TensorSlice columns{{2, 16}, 1, {{0, 4, 0}, {8, 2, 0, 2}}};
  EXPECT_TRUE(columns.copies_in_blocks(2));
  EXPECT_FALSE(columns.copies_in_blocks(4)) << "a row has 6";
  EXPECT_TRUE((TensorSlice{{2, 16}, 1, {{0, 3}, {5, 4}}}.copies_in_blocks(256)))
      << "none is held twice";
}

}  // namespace
}  // namespace zero::testing
