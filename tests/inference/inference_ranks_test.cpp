// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#include <gmock/gmock.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <mutex>
#include <optional>
#include <utility>

#include "collectives/backends.h"
#include "inference/inference_model.h"
#include "tests/errors.h"
#include "tests/inference/tiny_models.h"

namespace zero::testing {
namespace {

using ::testing::HasSubstr;

using Logits = std::vector<float>;

/// Three blocks: more than there are windows, which are not a divisor of them.
Gpt2Config gpt2() {
  Gpt2Config config = small_gpt2();
  config.layers = 3;
  config.width = 96;
  config.heads = 4;
  return config;
}
LlamaConfig llama() {
  LlamaConfig config = small_llama();
  config.layers = 3;
  config.heads = 8;
  config.kv_heads = 4;
  return config;
}
LlamaConfig qwen2() {
  LlamaConfig config = llama();
  config.rotary.scaling.reset();
  config.head = LlamaConfig::Head::tied;
  config.qkv_bias = LlamaConfig::QkvBias::present;
  return config;
}

InferenceOptions options(DType dtype = DType::fp32, WeightFormat format = WeightFormat::plain) {
  return {.dtype = dtype,
          .weights = format,
          .requests = 2,
          .request_tokens = 60,
          .rows = 48,
          .logit_rows = 24};
}

/// Different for every shard rank.
std::vector<std::uint32_t> tokens_of(int shard, std::int64_t vocabulary) {
  const auto ids = Batch::random(40, vocabulary, static_cast<std::uint32_t>(shard) + 5).inputs;
  return {ids.begin(), ids.end()};
}
/// Tokens of each pass; 0: none. Ranks have passes of different lengths, and some none.
std::vector<std::size_t> passes_of(int shard) {
  static const std::vector<std::vector<std::size_t>> kPasses{
      {17, 1, 0, 1, 5, 0}, {9, 22, 1, 1, 0, 0}, {0, 1, 1, 30, 0, 0}, {0, 0, 2, 1, 1, 0}};
  return kPasses.at(static_cast<std::size_t>(shard));
}

/// The logits of all passes of a shard rank, of up to 20 tokens of each.
Logits run_passes(InferenceModel& model, int shard) {
  const std::vector<std::uint32_t> tokens = tokens_of(shard, model.vocabulary());
  auto rest = std::span<const std::uint32_t>(tokens);
  const std::int64_t slot = model.cache().open();
  Logits all;
  for (const std::size_t count : passes_of(shard)) {
    const InferenceModel::Part part{slot, rest.first(count),
                                    static_cast<std::int64_t>(std::min<std::size_t>(count, 20))};
    model.forward(count == 0 ? std::span<const InferenceModel::Part>() : std::span(&part, 1));
    rest = rest.subspan(count);
    for (std::int64_t i = 0; count > 0 && i < part.logits; ++i) {
      const auto row = model.logits(i);
      all.insert(all.end(), row.begin(), row.end());
    }
  }
  model.cache().close(slot);
  return all;
}

std::unique_ptr<Device> open_device(const std::optional<StreamOrder>& order) {
  return order ? testing::open(*order) : cpu::open();
}

class InferenceRanks : public ::testing::Test {
 protected:
  void save(const ModelConfig& config) { with_saved_model(config, folder_, 1); }

  Logits alone(int shard, const InferenceOptions& with) {
    const auto device = cpu::open();
    return run_passes(*open_inference_model(*device, folder_, with), shard);
  }
  /// Of each rank of a mesh.
  std::vector<Logits> on_mesh(const MeshShape& shape, const InferenceOptions& with,
                              const std::optional<StreamOrder>& order = {}) {
    const int ranks = shape.replicate * shape.shard * shape.tensor;
    std::vector<Logits> all(static_cast<std::size_t>(ranks));
    local::run(ranks, [&](Communicator& world) {
      Mesh mesh(world, shape);
      const auto device = open_device(order);
      const auto model = open_inference_model(*device, folder_, with, &mesh);
      all[static_cast<std::size_t>(world.rank())] = run_passes(*model, mesh.index(Axis::shard));
    });
    return all;
  }

  Scratch scratch_;
  const std::string folder_ = scratch_.path("model/");
};

void expect_near(const Logits& found, const Logits& expected, float tolerance) {
  ASSERT_EQ(found.size(), expected.size());
  float most = 0;
  for (std::size_t i = 0; i < found.size(); ++i) {
    most = std::max(most, std::abs(found[i] - expected[i]));
  }
  EXPECT_LT(most, tolerance);
}

using Kind = std::pair<DType, WeightFormat>;
constexpr std::array kKinds{
    Kind{DType::fp32, WeightFormat::plain}, Kind{DType::bf16, WeightFormat::plain},
    Kind{DType::fp16, WeightFormat::plain}, Kind{DType::fp32, WeightFormat::int8},
    Kind{DType::bf16, WeightFormat::nf4},   Kind{DType::fp32, WeightFormat::q4}};

TEST_F(InferenceRanks, ShardedWeightsGiveTheBitsOfOneProcessInEveryFormat) {
  for (const ModelConfig& config :
       {ModelConfig(gpt2()), ModelConfig(llama()), ModelConfig(qwen2())}) {
    save(config);
    for (const auto& [dtype, format] : kKinds) {
      const InferenceOptions with = options(dtype, format);
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

TEST_F(InferenceRanks, AnyNumberOfWindowsGivesTheSameBits) {
  save(llama());
  for (const std::int64_t windows : {1, 2, 3, 9}) {
    InferenceOptions with = options();
    with.windows = windows;
    EXPECT_EQ(on_mesh({.shard = 2}, with)[1], alone(1, with)) << windows << " windows";
  }
}

TEST_F(InferenceRanks, TensorRanksAgreeWithEachOtherAndNearlyWithOneProcess) {
  for (const ModelConfig& config :
       {ModelConfig(gpt2()), ModelConfig(llama()), ModelConfig(qwen2())}) {
    save(config);
    const Logits expected = alone(0, options());
    for (const int ranks : {2, 3, 4}) {
      const std::vector<Logits> found = on_mesh({.shard = 1, .tensor = ranks}, options());
      for (const Logits& each : found) {
        EXPECT_EQ(each, found[0]);
        expect_near(each, expected, 1e-4F);
      }
    }
    const std::vector<Logits> half =
        on_mesh({.shard = 1, .tensor = 2}, options(DType::bf16, WeightFormat::int8));
    EXPECT_EQ(half[0], half[1]);
    expect_near(half[0], alone(0, options(DType::bf16, WeightFormat::int8)), 0.5F);
  }
}

// 8 tensor ranks share 4 heads of keys.
TEST_F(InferenceRanks, TensorRanksMayOutnumberHeadsOfKeys) {
  save(llama());
  const std::vector<Logits> found = on_mesh({.shard = 1, .tensor = 8}, options());
  EXPECT_EQ(found[7], found[0]);
  expect_near(found[0], alone(0, options()), 1e-4F);
}

TEST_F(InferenceRanks, ShardedTensorRanksGiveTheBitsOfTensorRanks) {
  for (const ModelConfig& config : {ModelConfig(gpt2()), ModelConfig(llama())}) {
    save(config);
    for (const auto& [dtype, format] : {kKinds[0], kKinds[4]}) {
      const InferenceOptions with = options(dtype, format);
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
  save(llama());
  for (const MeshShape& shape : {MeshShape{1, 3, 1}, MeshShape{1, 1, 2}, MeshShape{1, 2, 2}}) {
    const InferenceOptions with = options(DType::bf16);
    const std::vector<Logits> expected = on_mesh(shape, with);
    EXPECT_EQ(on_mesh(shape, with, StreamOrder{.policy = StreamOrder::Policy::lazy}), expected);
    for (std::uint64_t seed = 0; seed < 8; ++seed) {
      EXPECT_EQ(on_mesh(shape, with, StreamOrder{StreamOrder::Policy::seeded, seed}), expected)
          << "seed " << seed;
    }
  }
}

TEST_F(InferenceRanks, MemoryIsAsPlannedAndNothingIsAllocatedLater) {
  const ModelConfig config = llama();
  save(config);
  for (const auto& [dtype, format] : kKinds) {
    for (const MeshShape& shape : {MeshShape{1, 4, 1}, MeshShape{1, 1, 2}, MeshShape{1, 3, 2}}) {
      const int ranks = shape.shard * shape.tensor;
      const InferenceOptions with = options(dtype, format);
      local::run(ranks, [&](Communicator& world) {
        Mesh mesh(world, shape);
        const auto device = cpu::open({.threads = 2});
        const auto model = open_inference_model(*device, folder_, with, &mesh);
        const auto planned_world = planning::communicator(world.rank(), ranks, BackendKind::local);
        Mesh planned_mesh(*planned_world, shape);
        const auto planning = planning::open(2);
        const InferenceModel planned(*planning, config, with, &planned_mesh);
        EXPECT_EQ(device->ledger().snapshot().labels, planning->ledger().snapshot().labels);
        const std::int64_t allocations = device->ledger().allocations();
        run_passes(*model, mesh.index(Axis::shard));
        EXPECT_EQ(device->ledger().allocations(), allocations);
        EXPECT_EQ(device->ledger().snapshot().peak, planning->ledger().snapshot().peak);
      });
    }
  }
}

/// Bytes of a class on rank 0 of a mesh, planned.
std::int64_t planned(const MeshShape& shape, const ModelConfig& config,
                     const InferenceOptions& with, MemoryClass of) {
  const auto world = planning::communicator(0, shape.shard * shape.tensor, BackendKind::local);
  Mesh mesh(*world, shape);
  const auto device = planning::open();
  const InferenceModel model(*device, config, with, &mesh);
  return device->ledger().snapshot().current_of(of);
}

// Llama 3.2 3B's sizes.
LlamaConfig llama_3b() {
  LlamaConfig config = tiny_llama();
  config.layers = 28;
  config.width = 3072;
  config.heads = 24;
  config.kv_heads = 8;
  config.head_width = 128;
  config.intermediate = 8192;
  config.vocabulary = 128256;
  config.context = 8192;
  config.head = LlamaConfig::Head::tied;
  return config;
}

TEST(InferenceRanksMemory, OfWeightsIsAFourthOnFourRanks) {
  const LlamaConfig config = llama_3b();
  const InferenceOptions with{.dtype = DType::bf16, .requests = 4, .request_tokens = 1024};
  const std::int64_t whole = planned({1, 1, 1}, config, with, MemoryClass::parameters);
  const std::int64_t block = 100'663'296 * 2;
  for (const MeshShape& shape : {MeshShape{1, 4, 1}, MeshShape{1, 1, 4}, MeshShape{1, 2, 2}}) {
    EXPECT_LT(planned(shape, config, with, MemoryClass::parameters), whole / 4 + (1 << 20));
    EXPECT_EQ(planned(shape, config, with, MemoryClass::gathered),
              shape.shard == 1 ? 0 : 2 * block / shape.tensor);
  }
}

TEST(InferenceRanksMemory, OfTheCacheIsThatOfTheRanksHeads) {
  const LlamaConfig config = llama_3b();
  const auto bytes = [&](int tensor) {
    const auto world = planning::communicator(0, tensor, BackendKind::local);
    Mesh mesh(*world, {1, 1, tensor});
    const auto device = planning::open();
    InferenceModel model(*device, config, {.dtype = DType::bf16, .request_tokens = 1024}, &mesh);
    return model.cache().shape().block_bytes();
  };
  EXPECT_EQ(bytes(4) * 4, bytes(1));
  EXPECT_EQ(bytes(8) * 8, bytes(1));
}

TEST_F(InferenceRanks, TimeOfWaitingIsCounted) {
  save(gpt2());
  local::run(2, [&](Communicator& world) {
    Mesh mesh(world, {.shard = 2});
    const auto device = cpu::open();
    const auto model = open_inference_model(*device, folder_, options(), &mesh);
    EXPECT_EQ(model->exposed_seconds().total, 0);
    model->forward({});
    const double first = model->exposed_seconds().last;
    EXPECT_GT(first, 0);
    model->forward({});
    EXPECT_EQ(model->exposed_seconds().total, first + model->exposed_seconds().last);
  });
}

TEST_F(InferenceRanks, ARankThatFailsBeforeItsPassReleasesTheOthers) {
  save(gpt2());
  for (const MeshShape& shape : {MeshShape{1, 3, 1}, MeshShape{1, 1, 3}}) {
    EXPECT_THAT(message_of([&] {
                  local::run(3, [&](Communicator& world) {
                    Mesh mesh(world, shape);
                    const auto device = cpu::open();
                    const auto model = open_inference_model(*device, folder_, options(), &mesh);
                    const std::vector<std::uint32_t> tokens{1, 2, 3};
                    const InferenceModel::Part part{model->cache().open(), tokens};
                    model->forward(std::span(&part, 1));
                    if (world.rank() == 1) fail("no more");
                    EXPECT_THAT(message_of([&] { model->forward(std::span(&part, 1)); }),
                                HasSubstr("rank 1"));
                    EXPECT_THAT(message_of([&] { model->forward({}); }),
                                HasSubstr("a pass of this model failed"));
                  });
                }),
                HasSubstr("no more"));
  }
}

TEST_F(InferenceRanks, ARefusedPassIsToldToNoRankAndMayBeFollowedByAnother) {
  save(gpt2());
  const Logits expected = alone(0, options());
  local::run(2, [&](Communicator& world) {
    Mesh mesh(world, {.shard = 2});
    const auto device = cpu::open();
    const auto model = open_inference_model(*device, folder_, options(), &mesh);
    if (world.rank() == 1) {
      const std::vector<std::uint32_t> unknown{100000};
      const InferenceModel::Part part{model->cache().open(), unknown};
      EXPECT_THAT(message_of([&] { model->forward(std::span(&part, 1)); }),
                  HasSubstr("token 100000"));
    }
    const Logits found = run_passes(*model, world.rank());
    EXPECT_TRUE(world.rank() == 1 || found == expected);
  });
}

TEST_F(InferenceRanks, DifferentPassesOfATensorGroupAreRefusedOnAllRanks) {
  save(gpt2());
  local::run(4, [&](Communicator& world) {
    Mesh mesh(world, {1, 2, 2});
    const auto device = cpu::open();
    const auto model = open_inference_model(*device, folder_, options(), &mesh);
    const std::vector<std::uint32_t> tokens{1, world.rank() == 3 ? 2U : 1U};
    const InferenceModel::Part part{model->cache().open(), tokens};
    EXPECT_THAT(message_of([&] { model->forward(std::span(&part, 1)); }),
                HasSubstr("forward: rank 3 of the model has a pass of 2 tokens, and rank 2, of the "
                          "same tensor group, another one"));
  });
}

TEST(InferenceRanksRefusals, NameSizesAndOptions) {
  const auto refusal = [](const ModelConfig& config, const MeshShape& shape) {
    return message_of([&] {
      const auto world = planning::communicator(0, shape.shard * shape.tensor, BackendKind::local);
      Mesh mesh(*world, shape);
      const auto device = planning::open();
      InferenceModel(*device, config, {}, &mesh);
    });
  };
  EXPECT_THAT(refusal(gpt2(), {1, 1, 5}),
              HasSubstr("4 heads of attention cannot be cut over 5 tensor ranks"));
  LlamaConfig narrow = llama();
  narrow.intermediate = 6;
  EXPECT_THAT(refusal(narrow, {1, 1, 8}),
              HasSubstr("model.intermediate: 6 cannot be cut over 8 tensor ranks"));
  const auto device = planning::open();
  EXPECT_THAT(message_of([&] { InferenceModel(*device, gpt2(), {.windows = 0}); }),
              HasSubstr("inference: windows is 0, expected 1 to 64"));
  EXPECT_THAT(message_of([&] {
                local::run(2, [](Communicator& world) {
                  Mesh mesh(world, {.shard = 2});
                  const auto device = cpu::open();
                  InferenceModel(*device, gpt2(), {.rows = 64 + world.rank()}, &mesh);
                });
              }),
              HasSubstr("rows"));
}

// More ranks than groups of columns: some keep nothing of a matrix, or no token.
TEST_F(InferenceRanks, RanksMayOutnumberGroupsOfColumns) {
  Gpt2Config config = gpt2();
  config.width = 32;
  config.heads = 2;
  config.vocabulary = 70;
  save(config);
  const std::vector<Logits> found = on_mesh({.shard = 4}, options());
  for (int shard = 0; shard < 4; ++shard) {
    EXPECT_EQ(found[static_cast<std::size_t>(shard)], alone(shard, options()));
  }
}

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
