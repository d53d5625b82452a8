// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/errors.h"
#include "tests/inference/rank_runs.h"

namespace zero::testing {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

TEST_F(InferenceRanks, TimeOfWaitingIsCounted) {
  save(three_blocks_of_gpt2());
  local::run(2, [&](Communicator& world) {
    Mesh mesh(world, {.shard = 2});
    const auto device = cpu::open();
    const auto model = open_inference_model(*device, folder_, rank_options(), &mesh);
    EXPECT_EQ(model->exposed_seconds().total, 0);
    model->forward({});
    const double first = model->exposed_seconds().last;
    EXPECT_GT(first, 0);
    model->forward({});
    EXPECT_EQ(model->exposed_seconds().total, first + model->exposed_seconds().last);
  });
}

TEST_F(InferenceRanks, ARankThatFailsBeforeItsPassReleasesTheOthers) {
  save(three_blocks_of_gpt2());
  for (const MeshShape& shape : {MeshShape{1, 3, 1}, MeshShape{1, 1, 3}}) {
    EXPECT_THAT(error_of([&] {
                  local::run(3, [&](Communicator& world) {
                    Mesh mesh(world, shape);
                    const auto device = cpu::open();
                    const auto model =
                        open_inference_model(*device, folder_, rank_options(), &mesh);
                    const std::vector<std::uint32_t> tokens{1, 2, 3};
                    const InferenceModel::Part part{model->cache().open(), tokens};
                    model->forward(std::span(&part, 1));
                    if (world.rank() == 1) fail("no more");
                    EXPECT_THAT(error_of([&] { model->forward(std::span(&part, 1)); }),
                                HasSubstr("rank 1"));
                    EXPECT_THAT(error_of([&] { model->forward({}); }),
                                HasSubstr("a pass of this model failed"));
                  });
                }),
                HasSubstr("no more"));
  }
}

TEST_F(InferenceRanks, ARefusedPassIsToldToNoRankAndMayBeFollowedByAnother) {
  save(three_blocks_of_gpt2());
  const Logits expected = alone(0, rank_options());
  local::run(2, [&](Communicator& world) {
    Mesh mesh(world, {.shard = 2});
    const auto device = cpu::open();
    const auto model = open_inference_model(*device, folder_, rank_options(), &mesh);
    if (world.rank() == 1) {
      const std::vector<std::uint32_t> unknown{100000};
      const InferenceModel::Part part{model->cache().open(), unknown};
      EXPECT_THAT(error_of([&] { model->forward(std::span(&part, 1)); }),
                  HasSubstr("token 100000"));
    }
    const Logits found = run_passes(*model, world.rank());
    EXPECT_TRUE(world.rank() == 1 || found == expected);
  });
}

TEST_F(InferenceRanks, DifferentPassesOfATensorGroupAreRefusedOnAllRanks) {
  save(three_blocks_of_gpt2());
  local::run(4, [&](Communicator& world) {
    Mesh mesh(world, {1, 2, 2});
    const auto device = cpu::open();
    const auto model = open_inference_model(*device, folder_, rank_options(), &mesh);
    const std::vector<std::uint32_t> tokens{1, world.rank() == 3 ? 2U : 1U};
    const InferenceModel::Part part{model->cache().open(), tokens};
    EXPECT_THAT(error_of([&] { model->forward(std::span(&part, 1)); }),
                HasSubstr("forward: rank 3 of the model has a pass of 2 tokens, and rank 2, of the "
                          "same tensor group, another one"));
  });
}

TEST(InferenceRanksRefusals, AMeshThatServesAnotherDevice) {
  local::run(2, [](Communicator& world) {
    Mesh mesh(world, {.shard = 2});
    const auto device = cpu::open();
    const InferenceModel model(*device, three_blocks_of_gpt2(), {}, &mesh);
    const auto other = cpu::open();
    EXPECT_THAT(error_of([&] { InferenceModel(*other, three_blocks_of_gpt2(), {}, &mesh); }),
                AllOf(HasSubstr(fmt::format("[rank {}] InferenceModel: the communicator serves "
                                            "another device (\"cpu\")",
                                            world.rank())),
                      HasSubstr("give both the same device")));
    const InferenceModel beside(*device, three_blocks_of_gpt2(), {}, &mesh);
  });
}

TEST(InferenceRanksRefusals, NameSizesAndOptions) {
  const auto refusal = [](const DecoderShape& config, const MeshShape& shape) {
    return error_of([&] {
      const auto world = planning::communicator(0, shape.shard * shape.tensor, BackendKind::local);
      Mesh mesh(*world, shape);
      const auto device = planning::open();
      InferenceModel(*device, config, {}, &mesh);
    });
  };
  EXPECT_THAT(refusal(three_blocks_of_gpt2(), {1, 1, 5}),
              HasSubstr("4 heads of attention cannot be cut over 5 tensor ranks"));
  DecoderShape narrow = three_blocks_of_llama();
  narrow.intermediate = 6;
  EXPECT_THAT(refusal(narrow, {1, 1, 8}),
              HasSubstr("model.intermediate: 6 cannot be cut over 8 tensor ranks"));
  const auto device = planning::open();
  EXPECT_THAT(error_of([&] { InferenceModel(*device, three_blocks_of_gpt2(), {.windows = 0}); }),
              HasSubstr("inference: windows is 0, expected 1 to 64"));
  const auto with_options = [](auto options_of) {
    return error_of([&] {
      local::run(2, [&](Communicator& world) {
        Mesh mesh(world, {.shard = 2});
        const auto device = cpu::open();
        InferenceModel(*device, three_blocks_of_gpt2(), options_of(world.rank()), &mesh);
      });
    });
  };
  EXPECT_THAT(with_options([](int rank) { return InferenceOptions{.rows = 64 + rank}; }),
              HasSubstr("rows"));
  EXPECT_THAT(with_options([](int rank) { return InferenceOptions{.host_tokens = 64 * rank}; }),
              HasSubstr("host"));
}

}  // namespace
}  // namespace zero::testing
