// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#include <cmath>

#include "tests/inference/rank_runs.h"
#include "tests/support/test_device.h"

namespace zero::testing {
namespace {

void expect_near(const Logits& found, const Logits& expected, float tolerance) {
  ASSERT_EQ(found.size(), expected.size());
  float most = 0;
  for (std::size_t i = 0; i < found.size(); ++i) {
    most = std::max(most, std::abs(found[i] - expected[i]));
  }
  EXPECT_LT(most, tolerance);
}

TEST_F(InferenceRanks, ShardedWeightsGiveTheBitsOfOneProcessInEveryFormat) {
  for (const DecoderShape& config :
       {three_blocks_of_gpt2(), three_blocks_of_llama(), three_blocks_of_qwen2()}) {
    save(config);
    for (const auto& [dtype, format] : kKinds) {
      const InferenceOptions with = rank_options(dtype, format);
      std::vector<Logits> expected;
      for (int shard = 0; shard < 4; ++shard) expected.push_back(alone(shard, with));
      for (const int ranks : {1, 2, 3, 4}) {
        const std::vector<Logits> found = on_mesh({.shard = ranks}, with);
        for (std::size_t rank = 0; rank < found.size(); ++rank) {
          ASSERT_EQ(found[rank], expected[rank])
              << "rank " << rank << " of " << ranks << " in " << name_of(format);
        }
      }
    }
  }
}

TEST_F(InferenceRanks, MatricesThatAreKeptPlainHaveTheBitsOfOneProcessToo) {
  for (const DecoderShape& config : {three_blocks_of_gpt2(), three_blocks_of_llama()}) {
    save(config);
    InferenceOptions with = rank_options(DType::bf16, WeightFormat::nf4);
    const Logits coded = alone(1, with);
    with.keep.add(MatrixRole::head);  // of GPT-2 the embedding too
    const Logits kept = alone(1, with);
    EXPECT_NE(kept, coded);
    EXPECT_EQ(on_mesh({.shard = 2}, with)[1], kept);
    for (const MatrixRole role : kMatrixRoles) with.keep.add(role);
    EXPECT_EQ(alone(1, with), alone(1, rank_options(DType::bf16))) << "nothing is codes";
  }
}

TEST_F(InferenceRanks, AnyNumberOfWindowsGivesTheSameBits) {
  save(three_blocks_of_llama());
  for (const std::int64_t windows : {1, 2, 3, 9}) {
    InferenceOptions with = rank_options();
    with.windows = windows;
    EXPECT_EQ(on_mesh({.shard = 2}, with)[1], alone(1, with)) << windows << " windows";
  }
}

TEST_F(InferenceRanks, TensorRanksAgreeWithEachOtherAndNearlyWithOneProcess) {
  for (const DecoderShape& config :
       {three_blocks_of_gpt2(), three_blocks_of_llama(), three_blocks_of_qwen2()}) {
    save(config);
    const Logits expected = alone(0, rank_options());
    for (const int ranks : {2, 3, 4}) {
      const std::vector<Logits> found = on_mesh({.shard = 1, .tensor = ranks}, rank_options());
      for (const Logits& each : found) {
        EXPECT_EQ(each, found[0]);
        expect_near(each, expected, 1e-4F);
      }
    }
    const std::vector<Logits> half =
        on_mesh({.shard = 1, .tensor = 2}, rank_options(DType::bf16, WeightFormat::int8));
    EXPECT_EQ(half[0], half[1]);
    expect_near(half[0], alone(0, rank_options(DType::bf16, WeightFormat::int8)), 0.5F);
  }
}

// 8 tensor ranks share 4 heads of keys.
TEST_F(InferenceRanks, TensorRanksMayOutnumberHeadsOfKeys) {
  save(three_blocks_of_llama());
  const std::vector<Logits> found = on_mesh({.shard = 1, .tensor = 8}, rank_options());
  EXPECT_EQ(found[7], found[0]);
  expect_near(found[0], alone(0, rank_options()), 1e-4F);
}

TEST_F(InferenceRanks, ShardedTensorRanksGiveTheBitsOfTensorRanks) {
  for (const DecoderShape& config : {three_blocks_of_gpt2(), three_blocks_of_llama()}) {
    save(config);
    for (const auto& [dtype, format] : {kKinds[0], kKinds[4]}) {
      const InferenceOptions with = rank_options(dtype, format);
      const Logits expected = on_mesh({.shard = 1, .tensor = 2}, with)[1];
      for (const MeshShape& shape : {MeshShape{1, 2, 2}, MeshShape{1, 3, 2}, MeshShape{2, 2, 2}}) {
        const std::vector<Logits> found = on_mesh(shape, with);
        EXPECT_EQ(found[0], expected);
        EXPECT_EQ(found[1], expected);
        EXPECT_EQ(found[2], found[3]);
        EXPECT_EQ(found.back(), found[shape.shard == 3 ? 5 : 2]);
      }
    }
  }
}

TEST_F(InferenceRanks, GiveTheSameBitsInEveryOrderOfStreams) {
  save(three_blocks_of_llama());
  for (const MeshShape& shape : {MeshShape{1, 3, 1}, MeshShape{1, 1, 2}, MeshShape{1, 2, 2}}) {
    const InferenceOptions with = rank_options(DType::bf16);
    const std::vector<Logits> expected = on_mesh(shape, with);
    EXPECT_EQ(on_mesh(shape, with, StreamOrder{.policy = StreamOrder::Policy::lazy}), expected);
    for (std::uint64_t seed = 0; seed < 8; ++seed) {
      EXPECT_EQ(on_mesh(shape, with, StreamOrder{StreamOrder::Policy::seeded, seed}), expected)
          << "seed " << seed;
    }
  }
}

// More ranks than groups of columns: some keep nothing of a matrix, or no token.
TEST_F(InferenceRanks, RanksMayOutnumberGroupsOfColumns) {
  save(three_blocks_of_gpt2({{"width", 32}, {"heads", 2}, {"vocabulary", 70}}));
  const std::vector<Logits> found = on_mesh({.shard = 4}, rank_options());
  for (int shard = 0; shard < 4; ++shard) {
    EXPECT_EQ(found[static_cast<std::size_t>(shard)], alone(shard, rank_options()));
  }
}

}  // namespace
}  // namespace zero::testing
