// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#include <gmock/gmock.h>

#include "model/unit_listener.h"
#include "tests/errors.h"
#include "tests/model/recompute_plans.h"

// What backward computes again changes memory, traffic and work as foretold.
namespace zero::testing {
namespace {

using ::testing::HasSubstr;

/// All sizes divide by 2, and pieces of memory by their alignment.
DecoderShape even_gpt2(std::int64_t vocabulary, std::int64_t layers = kBlocks) {
  return tiny_gpt2({{"layers", layers},
                    {"width", 64},
                    {"heads", 4},
                    {"context", 32},
                    {"vocabulary", vocabulary}});
}

DecoderShape even_llama() {
  return tiny_llama({{"layers", kBlocks},
                     {"width", 64},
                     {"head_width", 16},
                     {"intermediate", 128},
                     {"vocabulary", 8},
                     {"context", 32},
                     {"rope_scaling", nullptr}});
}

constexpr BatchShape kEven{2, 32};
constexpr std::int64_t kRows = 64;

std::int64_t planned_bytes(const DecoderShape& config, const RecomputePlan& plan, int ranks,
                           bool own_rows) {
  const auto nobody = planning::communicator(0, ranks, BackendKind::local);
  Mesh mesh(*nobody, {1, 1, ranks});
  const auto device = planning::open(1);
  return Training(mesh, *device, {}, config, kEven, 1, {.sequence_parallel = own_rows}, plan)
      .model.activation_bytes();
}

/// Bytes of a row of one block, as docs/memory.md states them, on a rank of `ranks` tensor ranks.
struct RowBytes {
  std::int64_t x, statistics, qkv, attended, logsumexp, middle, hidden;
  std::int64_t normed = 0, activated = 0;  // of outputs that are kept
  std::int64_t of(BlockTensor tensor) const {
    switch (tensor) {
      case BlockTensor::qkv:
        return qkv + normed;
      case BlockTensor::attended:
        return attended + logsumexp;
      case BlockTensor::middle:
        return middle + statistics;
      case BlockTensor::hidden:
        return hidden + normed + activated;
    }
    return 0;
  }
  std::int64_t of(const BlockRecompute& again) const {
    std::int64_t bytes = again.input ? x + statistics : 0;
    for (const BlockTensor tensor : kBlockTensors) bytes += again.has(tensor) ? of(tensor) : 0;
    return bytes;
  }
};

RowBytes row_bytes(const DecoderShape& config, int ranks, bool own_rows) {
  const std::int64_t own = own_rows ? ranks : 1;
  const bool swiglu = config.family->name == "llama";
  const std::int64_t kv = swiglu ? 2 : 4;
  return {.x = 64 * 4 / own,
          .statistics = (swiglu ? 4 : 8) / own,
          .qkv = (4 + 2 * kv) * 16 * 4 / ranks,
          .attended = 64 * 4 / ranks,
          .logsumexp = 4 * 4 / ranks,
          .middle = 64 * 4 / own,
          .hidden = 256 * 4 / ranks};
}

/// The outputs of norms, and GELU's, are a block's own.
RowBytes with_outputs(RowBytes row, const DecoderShape& config, int ranks) {
  row.normed = row.x;
  row.activated = config.family->name == "llama" ? 0 : 256 * 4 / ranks;
  return row;
}

/// Bytes that are alive in the head, when forward's are kept and backward's not there yet.
std::int64_t bytes_at_head(const DecoderShape& config, const RecomputePlan& plan, int ranks,
                           bool own_rows) {
  const auto nobody = planning::communicator(0, ranks, BackendKind::local);
  Mesh mesh(*nobody, {1, 1, ranks});
  const auto device = planning::open(1);
  Engine engine(mesh, *device, {});
  Decoder model(engine, config, kEven, nullptr, {.sequence_parallel = own_rows}, plan);
  const DecoderMemory memory = model.memory_with(plan);
  return memory.places().most_alive(memory.head_step(), memory.head_step());
}

TEST(RecomputeMemory, KeepsUntilBackwardWhatIsNotComputedAgain) {
  for (const DecoderShape& config : {even_gpt2(8), even_llama()}) {
    for (const auto& [ranks, own_rows] :
         std::vector<std::pair<int, bool>>{{1, false}, {2, false}, {2, true}}) {
      const RowBytes without = row_bytes(config, ranks, own_rows);
      const std::int64_t whole = bytes_at_head(config, {}, ranks, own_rows);
      for (const RecomputePlan& plan : recompute_plans()) {
        const bool outputs = plan.outputs == BlockOutputs::kept;
        const RowBytes row = outputs ? with_outputs(without, config, ranks) : without;
        // Two norms' and the activation's of each block.
        std::int64_t expected = kBlocks * (2 * row.normed + row.activated);
        for (std::int64_t i = 0; i < kBlocks; ++i) {
          const BlockRecompute again = plan.block(i);
          expected -= row.of(again);
          if (plan.partition_inputs && again.middle && !again.input && ranks > 1 && !own_rows) {
            expected -= row.x - row.x / ranks;
          }
        }
        EXPECT_EQ(bytes_at_head(config, plan, ranks, own_rows) - whole, kRows * expected)
            << config.family->name << ", " << ranks << " ranks, " << plan.text();
      }
    }
  }
}

// While its backward runs, a block has all its tensors, kept or computed again, beside what the
// blocks before it keep: a plan takes what the last block needs, unless the head needs more.
TEST(RecomputeMemory, OfTheFirstBlocksAloneSparesWhatTheyKeepAndTakesNothingElse) {
  const RowBytes row = row_bytes(even_gpt2(8), 1, false);
  const std::int64_t whole = planned_bytes(even_gpt2(8), {}, 1, false);
  for (std::size_t count = 1; count < kBlocks; ++count) {
    RecomputePlan plan;
    plan.blocks.resize(kBlocks);
    for (std::size_t i = 0; i < count; ++i) plan.blocks[i] = {.hidden = true};
    EXPECT_EQ(whole - planned_bytes(even_gpt2(8), plan, 1, false),
              static_cast<std::int64_t>(count) * kRows * row.hidden)
        << plan.text();
  }
}

// One row of a block has 10 C elements in GPT-2: C, once whole.
TEST(RecomputeMemory, OfBlocksThatKeepTheirInputAloneIsWhatItSays) {
  const auto of_layers = [](std::int64_t layers, const RecomputePlan& plan) {
    return planned_bytes(even_gpt2(8, layers), plan, 1, false);
  };
  EXPECT_EQ(of_layers(4, {}) - of_layers(3, {}), kRows * (10 * 64 * 4 + 2 * 8 + 4 * 4));
  EXPECT_EQ(of_layers(4, RecomputePlan::full(4)) - of_layers(3, RecomputePlan::full(3)),
            kRows * (64 * 4 + 8));
  EXPECT_EQ(of_layers(8, RecomputePlan::grouped(8, 4)) - of_layers(6, RecomputePlan::grouped(6, 3)),
            kRows * (64 * 4 + 8));
}

// Where a wide head needs the most, backward's tensors of a block lie where its logits were.
TEST(RecomputeMemory, OfBlocksAndOfAWideHeadIsTheSame) {
  const std::int64_t wide = planned_bytes(even_gpt2(4096), {}, 1, false);
  const std::int64_t full = planned_bytes(even_gpt2(4096), RecomputePlan::full(kBlocks), 1, false);
  const RowBytes row = row_bytes(even_gpt2(4096), 1, false);
  EXPECT_EQ(wide - full, kRows * kBlocks * row.of(BlockRecompute::all()));
}

struct Forecast {
  int ranks = 1;
  bool own_rows = false;
};

class RecomputeForecast : public ::testing::TestWithParam<Forecast> {};

TEST_P(RecomputeForecast, OfBytesInMemoryAndOnWiresIsExact) {
  const auto [ranks, own_rows] = GetParam();
  for (const DecoderShape& config : {gpt2_of_blocks(), llama_of_blocks(tiny_llama())}) {
    for (const RecomputePlan& plan : recompute_plans()) {
      const TensorOptions tensor{.sequence_parallel = own_rows, .chunks = 2};
      const EngineOptions options{.stage = 3, .limits = {.persistence_threshold = 0}};
      local::run(2 * ranks, [&](Communicator& world) {
        const auto device = cpu::open({.threads = 1});
        Mesh mesh(world, {1, 2, ranks});
        Training training(mesh, *device, options, config, kRowOfTokens, 1, tensor, plan);
        const auto nobody = planning::communicator(world.rank(), world.size(), BackendKind::local);
        Mesh nowhere(*nobody, {1, 2, ranks});
        const auto paper = planning::open(1);
        Training planned(nowhere, *paper, options, config, kRowOfTokens, 1, tensor, plan);
        training.train(Batch::random(9, 23, 1), 1.0F);
        const StepReport report = training.engine.step({.learning_rate = 1e-3});
        EXPECT_EQ(paper->ledger().snapshot().peak, device->ledger().snapshot().peak) << plan.text();
        MeshTraffic foretold = planned.engine.planned_axes();
        planned.engine.mesh()
            .booked(foretold, planned.engine.mesh().axis(Axis::tensor))
            .add(planned.model.tensor_traffic());
        for (const Axis axis : {Axis::shard, Axis::tensor}) {
          for (const Operation operation :
               {Operation::all_gather, Operation::reduce_scatter, Operation::all_reduce}) {
            EXPECT_EQ(report.axes.of(axis).of(operation), foretold.of(axis).of(operation))
                << name_of(axis) << ", " << name_of(operation) << ", " << plan.text();
          }
        }
      });
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Groups, RecomputeForecast,
                         ::testing::Values(Forecast{1, false}, Forecast{2, false},
                                           Forecast{2, true}),
                         [](const auto& tested) {
                           return fmt::format("{}Ranks{}", tested.param.ranks,
                                              tested.param.own_rows ? "OwnRows" : "");
                         });

int gathers(const RecomputePlan& plan, const ScheduleLimits& limits) {
  const auto nobody = planning::communicator(0, 2, BackendKind::local);
  Mesh mesh(*nobody, {1, 2, 1});
  const auto device = planning::open(1);
  const Training training(mesh, *device, {.stage = 3, .limits = limits}, gpt2_of_blocks(),
                          kRowOfTokens, 1, {}, plan);
  return training.engine.schedule().gathers;
}

TEST(RecomputeGathers, AreThoseOfBackwardUnlessAGroupsBlocksHaveToBeGatheredOnceMore) {
  const ScheduleLimits none{.prefetch_elements = 0, .persistence_threshold = 0};
  const int usual = gathers({}, none);
  EXPECT_EQ(gathers(RecomputePlan::full(kBlocks), none), usual);
  EXPECT_EQ(gathers(RecomputePlan::full(kBlocks, 2), none), usual);
  EXPECT_EQ(gathers(RecomputePlan::selective(kBlocks, {BlockTensor::hidden}), none), usual);
  // Groups of three and two: all but the last block of each are used once more.
  EXPECT_EQ(gathers(RecomputePlan::grouped(kBlocks, 2), none), usual + 3);
  const ScheduleLimits near{
      .prefetch_elements = 0, .persistence_threshold = 0, .reuse_distance = 1'000'000};
  EXPECT_EQ(gathers(RecomputePlan::grouped(kBlocks, 2), near), gathers({}, near));
}

/// Counts the products' floating-point operations.
class Flop final : public UnitListener {
 public:
  void begin(const OpCost& cost) override {
    if (cost.name.starts_with("linear")) products_ += static_cast<std::int64_t>(cost.flop);
    if (cost.name.starts_with("attention_f")) ++attentions_;
  }
  void end() noexcept override {}
  void unit(std::string_view name, Phase phase) override {
    if (phase == Phase::recompute) units_.emplace_back(name);
  }
  std::int64_t products_ = 0;
  int attentions_ = 0;
  std::vector<std::string> units_;
};

Flop heard(const RecomputePlan& plan) {
  Flop flop;
  local::run(1, [&](Communicator& world) {
    const auto device = cpu::open({.threads = 1});
    Engine engine(world, *device, {});
    Decoder model(engine, even_gpt2(8), kEven, &flop, {}, plan);
    engine.seal({.order = model.order()});
    model.allocate();
    const Batch batch = Batch::random(kRows, 8, 1);
    double loss = 0;
    model.train(View::of(std::span(batch.inputs)), View::of(std::span(batch.targets)), 1,
                View::of(std::span(&loss, 1)));
    device->compute().synchronize();
  });
  return flop;
}

TEST(RecomputeWork, RepeatsNoProductThatNothingReads) {
  using enum BlockTensor;
  const std::int64_t square = 2 * kRows * 64 * 64;  // of a C x C product
  const Flop none = heard({});
  const auto more = [&](const RecomputePlan& plan) {
    return (heard(plan).products_ - none.products_) / square;
  };
  EXPECT_TRUE(none.units_.empty());
  // q, k, v; projection; hidden; no output of the MLP.
  EXPECT_EQ(more(RecomputePlan::full(kBlocks)), kBlocks * (3 + 1 + 4));
  EXPECT_EQ(more(RecomputePlan::full(kBlocks, 4)), 2 * (3 + 1 + 4));
  EXPECT_EQ(more(RecomputePlan::selective(kBlocks, {qkv})), kBlocks * 3);
  EXPECT_EQ(more(RecomputePlan::selective(kBlocks, {attended})), 0);
  EXPECT_EQ(more(RecomputePlan::selective(kBlocks, {hidden})), kBlocks * 4);
  // Three blocks' output is the next one's input.
  EXPECT_EQ(more(RecomputePlan::grouped(kBlocks, 2)), kBlocks * (3 + 1 + 4) + 3 * 4);
  EXPECT_EQ(heard(RecomputePlan::selective(kBlocks, {attended})).attentions_, 2 * none.attentions_);
  EXPECT_THAT(heard(RecomputePlan::grouped(kBlocks, 2)).units_,
              ::testing::ElementsAre("h.3", "h.4", "h.0", "h.1", "h.2"));
}

TEST(RecomputePlans, SayWhatTheyDo) {
  EXPECT_EQ(RecomputePlan().text(), "nothing");
  EXPECT_EQ(RecomputePlan::full(12).text(), "blocks 0 to 11: whole");
  EXPECT_EQ(mixed_plan().text(),
            "block 0: nothing; block 1: hidden; block 2: whole; blocks 3 to 4: whole, from the "
            "input of block 3");
}

TEST(RecomputePlans, ThatCannotBeAreRefused) {
  const auto refusal = [](const RecomputePlan& plan) {
    return error_of([&] { plan.check(kBlocks); });
  };
  EXPECT_THAT(refusal(RecomputePlan::full(4)), HasSubstr("is of 4 blocks, the model has 5"));
  RecomputePlan plan = RecomputePlan::full(kBlocks);
  plan.blocks[0].input = true;
  EXPECT_THAT(refusal(plan), HasSubstr("does not keep the input of block 0"));
  plan = RecomputePlan::full(kBlocks, 2);
  plan.blocks[2].input = true;
  EXPECT_THAT(refusal(plan), HasSubstr("does not keep the input of block 2: that block and the "
                                       "one before must be computed again whole"));
  plan.blocks = std::vector<BlockRecompute>(kBlocks, {.attended = true, .middle = true});
  EXPECT_THAT(refusal(plan), HasSubstr("block 0 compute middle again, but not all else"));
  EXPECT_THAT(error_of([] { RecomputePlan::full(5, 0); }), HasSubstr("every 0-th block"));
  EXPECT_THAT(error_of([] { RecomputePlan::grouped(5, 6); }),
              HasSubstr("6 groups of 5 blocks, expected 1 to 5 groups"));
}

TEST(RecomputePlans, OfATensorGroupMustBeEqual) {
  EXPECT_THAT(error_of([] {
                local::run(2, [](Communicator& world) {
                  const auto device = cpu::open({.threads = 1});
                  Mesh mesh(world, {1, 1, 2});
                  const Training training(mesh, *device, {}, gpt2_of_blocks(), kRowOfTokens, 1, {},
                                          RecomputePlan::full(kBlocks, 1 + world.rank()));
                });
              }),
              HasSubstr("computed again"));
}

}  // namespace
}  // namespace zero::testing
