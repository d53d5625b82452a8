// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#include "tests/support/combinations.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

namespace zero::testing {
namespace {

using ::testing::ElementsAre;
using ::testing::SizeIs;
using ::testing::UnorderedElementsAre;

TEST(Combinations, AreOfEachValueWithEachOther) {
  using Case = std::tuple<int, char>;
  EXPECT_THAT(combinations(false, {1, 2, 3}, {'a', 'b'}),
              ElementsAre(Case(1, 'a'), Case(2, 'a'), Case(3, 'a'), Case(1, 'b'), Case(2, 'b'),
                          Case(3, 'b')));
  EXPECT_THAT(combinations(false, {1, 2}, {'a', 'b', 'c'}, {0.5, 1.5}), SizeIs(12));
}

TEST(Combinations, OfADiagonalHaveEachValueOfEachList) {
  using Case = std::tuple<int, char, std::string>;
  const auto all = combinations(true, {1, 2}, {'a', 'b', 'c', 'd'},
                                {std::string("x"), std::string("y"), std::string("z")});
  EXPECT_THAT(all, UnorderedElementsAre(Case(1, 'a', "x"), Case(2, 'b', "y"), Case(1, 'c', "z"),
                                        Case(2, 'd', "z")));
}

TEST(Combinations, OfADiagonalDoNotKeepListsOfOneLengthInStep) {
  using Case = std::tuple<bool, int, bool>;
  EXPECT_THAT(combinations(true, {true, false}, {1, 2, 3}, {true, false}),
              ElementsAre(Case(true, 1, true), Case(false, 2, false), Case(true, 3, true)));
  using Pair = std::tuple<int, bool, bool>;
  EXPECT_THAT(combinations(true, {1, 2, 3}, {true, false}, {true, false}),
              ElementsAre(Pair(1, true, true), Pair(2, false, false), Pair(3, false, true)));
}

}  // namespace
}  // namespace zero::testing
