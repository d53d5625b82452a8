// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <bit>
#include <ostream>

#include "tests/case_names.h"
#include "tests/collectives/body.h"
#include "tests/collectives/host_ranks.h"
#include "tests/support/reference_sums.h"

namespace zero::test {
namespace {

/// Where ranks keep the values that they reduce, and so how peers read them: small values are
/// inlined behind the header; in a region they are read in place; elsewhere, and in common memory,
/// they are staged.
enum class Place { inlined, region, plain, each_other, common };

std::ostream& operator<<(std::ostream& out, Place place) {
  constexpr std::array kNames{"inlined", "region", "plain", "each_other", "common"};
  return out << kNames.at(static_cast<std::size_t>(place));
}

constexpr std::int64_t kSmall = 300;     // elements of fp32 that fit behind a header
constexpr std::int64_t kLarge = 70'001;  // and that do not

std::int64_t count_for(Place place, int world) {
  return (place == Place::inlined ? kSmall : kLarge) / world * world;
}

/// Memory of one rank for `count` values.
class Values {
 public:
  Values(Place place, host::Memory& memory, int rank, std::int64_t count,
         const std::shared_ptr<host::Mapping>& common) {
    if (place == Place::common) {
      view_ = {common->data() + rank * count * 4, count, DType::fp32, nullptr};
    } else if (place == Place::region || (place == Place::each_other && rank % 2 == 0)) {
      view_ = {memory.region().allocate(count * 4), count, DType::fp32, nullptr};
    } else {
      plain_.resize(static_cast<std::size_t>(count));
      view_ = View::of(std::span(plain_));
    }
    const auto values = view_.as<float>();
    for (std::size_t i = 0; i < values.size(); ++i) {
      values[i] = static_cast<float>(wild(rank, static_cast<std::int64_t>(i)));
    }
  }
  const View& view() const { return view_; }

 private:
  std::vector<float> plain_;
  View view_;
};

float sum_at(int world, std::int64_t element) {
  std::vector<float> values;
  for (int rank = 0; rank < world; ++rank) {
    values.push_back(static_cast<float>(wild(rank, element)));
  }
  return testing::tree_sum(values);
}

void expect_sums(std::span<const float> sums, std::int64_t begin, int world) {
  for (std::size_t i = 0; i < sums.size(); ++i) {
    const float expected = sum_at(world, begin + static_cast<std::int64_t>(i));
    ZERO_CHECK(std::bit_cast<std::uint32_t>(sums[i]) == std::bit_cast<std::uint32_t>(expected),
               "sum {} of {} ranks is {:a}, expected {:a}", i, world, sums[i], expected);
  }
}

class HostReductions : public ::testing::TestWithParam<std::tuple<int, Place>> {
 protected:
  using Body = std::function<void(HostTransport&, const Values&, int rank)>;

  // Runs `body` on every rank with its values in their place.
  void run(const Body& body) {
    const auto [world, place] = GetParam();
    const std::int64_t count = count_for(place, world);
    HostRanks ranks(world);
    const auto ends = ranks.run([&, world = world, place = place](HostTransport& transport,
                                                                  host::Memory& memory, int rank) {
      std::shared_ptr<host::Mapping> common;
      if (place == Place::common) {
        common = transport.allocate_shared(world * count * 4, "", ranks.all_gather_texts_of(rank));
      }
      body(transport, Values(place, memory, rank, count, common), rank);
      transport.barrier("end");  // peers may still read
    });
    EXPECT_THAT(ends, ::testing::Each("no error"));
  }
};

TEST_P(HostReductions, ReduceScatterSumsByTheTreeOverRanks) {
  const int world = std::get<0>(GetParam());
  run([=](HostTransport& transport, const Values& values, int rank) {
    const Slices full = Slices::even(values.view(), world);
    std::vector<float> sums(static_cast<std::size_t>(full.of(rank).count()));
    transport.reduce_scatter(full, {{}, View::of(std::span(sums)), nullptr}, {}, "h.0");
    expect_sums(sums, full.ranges[static_cast<std::size_t>(rank)].begin, world);
  });
}

TEST_P(HostReductions, AllReduceSumsByTheTreeOverRanks) {
  const int world = std::get<0>(GetParam());
  run([=](HostTransport& transport, const Values& values, int) {
    transport.all_reduce(values.view(), ReduceOp::sum, "h.0");
    expect_sums(values.view().as<float>(), 0, world);
  });
}

INSTANTIATE_TEST_SUITE_P(Worlds, HostReductions,
                         ::testing::Combine(::testing::Values(2, 3, 5, 7, 8),
                                            ::testing::Values(Place::inlined, Place::region,
                                                              Place::plain, Place::each_other,
                                                              Place::common)),
                         zero::testing::kCaseName);

// A sum in another order than the tree's has other bits, so the tests above would see one.
TEST(HostReductionsTest, HaveValuesWhoseSumShowsItsOrder) {
  for (const int world : {3, 5, 7, 8}) {
    std::int64_t in_rank_order = 0;
    std::int64_t from_rank_1 = 0;
    for (std::int64_t i = 0; i < kSmall; ++i) {
      std::vector<float> values;
      float sum = 0;
      for (int rank = 0; rank < world; ++rank) {
        values.push_back(static_cast<float>(wild(rank, i)));
        sum += values.back();
      }
      std::ranges::rotate(values, values.begin() + 1);
      if (sum != sum_at(world, i)) ++in_rank_order;
      if (testing::tree_sum(values) != sum_at(world, i)) ++from_rank_1;
    }
    EXPECT_GT(from_rank_1, 0) << world;
    EXPECT_TRUE(world == 3 || in_rank_order > 0) << world;  // of three, it is the tree's
  }
}

}  // namespace
}  // namespace zero::test
