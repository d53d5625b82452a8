// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <random>

#include "base/checked_math.h"
#include "partition/tensor_slice.h"
#include "tests/model/recompute_plans.h"

// Where the activations of a micro-batch lie: in no more bytes than places chosen by hand.
namespace zero::testing {
namespace {

/// The layout that was made by hand before lifetimes chose the places, as bytes: what blocks keep,
/// one place for each tensor that a block group computes again, operands that all blocks share.
class PlacesByHand {
 public:
  static std::int64_t bytes(const DecoderShape& decoder, const DecoderRows& rows, DType dtype,
                            const RecomputePlan& plan) {
    PlacesByHand places(decoder, rows, dtype, plan);
    for (std::int64_t i = 0; i < decoder.layers; ++i) places.take_block(i);
    places.take_operands();
    return places.take_wide();
  }

 private:
  PlacesByHand(const DecoderShape& decoder, const DecoderRows& rows, DType dtype,
               const RecomputePlan& plan)
      : d_(decoder), rows_(rows), dtype_(dtype), plan_(plan) {}

  bool keeps() const { return plan_.outputs == BlockOutputs::kept; }
  std::int64_t figures() const { return d_.norm == NormKind::layer ? 2 : 1; }
  void take(std::int64_t count, DType dtype) { end_ = round_up(end_ + count * size_of(dtype), 64); }
  void take(std::int64_t count) { take(count, dtype_); }
  /// A tensor of block i that is kept, or has a place for its number in the block group.
  void keep(std::string_view name, std::int64_t i, bool again, std::int64_t count, DType dtype) {
    if (!again) return take(count, dtype);
    shared_.try_emplace({name, i - plan_.first_of_group(i)}, count, dtype);
  }

  void take_block(std::int64_t i) {
    const BlockRecompute again = plan_.block(i);
    const std::int64_t own = rows_.own * d_.width;
    const bool partitions = plan_.partition_inputs && rows_.ranks > 1 && !rows_.sequence_parallel &&
                            again.whole() && !again.input;
    if (partitions) take(even_range(own, rows_.rank, rows_.ranks).count);
    const auto of = [&](std::string_view name, bool computed, std::int64_t count) {
      keep(name, i, computed, count, dtype_);
    };
    const auto in_fp32 = [&](std::string_view name, bool computed, std::int64_t count) {
      keep(name, i, computed, count, DType::fp32);
    };
    of("x", again.input || partitions, own);
    in_fp32("statistics", again.input, figures() * rows_.own);
    of("qkv", again.qkv, rows_.all * d_.qkv_width());
    in_fp32("logsumexp", again.attended, rows_.all * d_.heads);
    of("attended", again.attended, rows_.all * d_.attended_width());
    of("middle", again.middle, own);
    in_fp32("middle_statistics", again.middle, figures() * rows_.own);
    of("hidden", again.hidden, rows_.all * d_.hidden_width());
    if (d_.branch_norms) {
      of("projected", again.middle, own);
      in_fp32("projected_statistics", again.middle, rows_.own);
      of("output", again.hidden, own);
      in_fp32("output_statistics", again.hidden, rows_.own);
    }
    if (!keeps()) return;
    of("normed", again.qkv, own);
    of("middle_normed", again.hidden, own);
    if (!d_.gated()) of("activated", again.hidden, rows_.all * d_.intermediate);
  }

  void take_operands() {
    const std::int64_t own = rows_.own * d_.width;
    const std::int64_t all = rows_.all * d_.width;
    for (int each = rows_.sequence_parallel ? 4 : 3; each > 0; --each) take(own);
    take(figures() * rows_.own, DType::fp32);
    take(std::max(all, rows_.all * d_.attended_width()));
    if (rows_.sequence_parallel) take(all);
    if (d_.branch_norms) take(own);
    take(rows_.all, DType::fp64);
    take(rows_.ranks > 1 ? 3 * rows_.logits * rows_.ranks : 0, DType::fp32);
    const std::int64_t norms =
        rows_.sequence_parallel ? figures() * (d_.branch_norms ? 4 : 2) * d_.width : 0;
    take(norms + (d_.head_norms && rows_.ranks > 1 ? 2 * d_.head_width : 0), DType::fp32);
    const int tables = (d_.rotary ? 2 : 0) + (d_.local_rotary ? 2 : 0);
    for (int i = 0; i < tables; ++i) take(rows_.sequence * (d_.head_width / 2), DType::fp32);
  }

  /// What blocks compute again and the wide operands, or the logits.
  std::int64_t take_wide() {
    const std::int64_t of_head = end_;
    for (const auto& [name, tensor] : shared_) take(tensor.first, tensor.second);
    const std::int64_t of_blocks = end_;
    if (!keeps() || d_.gated()) take(rows_.all * d_.intermediate);
    if (!d_.gated()) take(rows_.all * d_.hidden_width());
    std::int64_t most = end_;
    end_ = of_blocks;
    take(rows_.all * d_.qkv_width());
    if (d_.head_norms) {
      take(rows_.all * d_.qkv_width());
      take(rows_.all * (d_.heads + d_.kv_heads), DType::fp32);
    }
    most = std::max(most, end_);
    end_ = of_head;
    take(rows_.logits * rows_.logit_columns);
    return std::max(most, end_);
  }

  const DecoderShape& d_;
  const DecoderRows& rows_;
  DType dtype_;
  const RecomputePlan& plan_;
  std::map<std::pair<std::string_view, std::int64_t>, std::pair<std::int64_t, DType>> shared_;
  std::int64_t end_ = 0;
};

/// A decoder, rows and a plan of any kind.
struct Drawn {
  explicit Drawn(unsigned seed, const std::vector<std::int64_t>& layers = {1, 2, 3, 4, 5, 8, 12})
      : random(seed) {
    draw_shape(layers);
    draw_rows();
    draw_plan();
  }
  std::int64_t below(std::int64_t count) {
    return static_cast<std::int64_t>(random() % static_cast<std::uint32_t>(count));
  }
  bool one_of(int count) { return below(count) == 0; }
  std::int64_t of(const std::vector<std::int64_t>& values) {
    return values[static_cast<std::size_t>(below(std::ssize(values)))];
  }

  void draw_shape(const std::vector<std::int64_t>& layers) {
    const DecoderShape families[] = {tiny_gpt2(), tiny_llama(), tiny_qwen2(), tiny_qwen3(),
                                     tiny_gemma3()};
    shape = families[below(5)];
    shape.layers = of(layers);
    shape.local_layers.assign(static_cast<std::size_t>(shape.layers), true);
    shape.head_width = of({4, 8, 16, 64});
    shape.heads = of({1, 2, 3, 4, 8});
    shape.kv_heads = one_of(2) ? shape.heads : 1;
    shape.width = one_of(2) ? shape.heads * shape.head_width : 1 + below(600);
    shape.intermediate = one_of(2) ? 4 * shape.width : 1 + below(4 * shape.width);
  }
  void draw_rows() {
    rows.sequence = of({9, 32, 128, 512});
    rows.all = rows.sequence * of({1, 2, 4});
    rows.ranks = static_cast<int>(of({1, 1, 2, 3, 4}));
    rows.rank = static_cast<int>(below(rows.ranks));
    rows.sequence_parallel = rows.ranks > 1 && one_of(2);
    rows.own =
        rows.sequence_parallel ? even_range(rows.all, rows.rank, rows.ranks).count : rows.all;
    rows.chunks = rows.ranks == 1 ? 1 : static_cast<int>(of({1, 2, 3}));
    rows.logits = std::min<std::int64_t>(rows.all, 1024);
    rows.logit_columns = of({8, 256, 4096, 50257});
    dtype = one_of(2) ? DType::fp32 : DType::bf16;
  }
  void draw_plan() {
    using enum BlockTensor;
    const std::int64_t kind = below(6);
    if (kind == 1) plan = RecomputePlan::full(shape.layers, 1 + below(4));
    if (kind == 2) plan = RecomputePlan::grouped(shape.layers, 1 + below(shape.layers));
    if (kind == 3) plan = RecomputePlan::selective(shape.layers, {one_of(2) ? qkv : hidden});
    if (kind == 4) plan = RecomputePlan::selective(shape.layers, {attended, hidden});
    if (kind == 5) {
      plan.blocks.resize(static_cast<std::size_t>(shape.layers));
      // Of deep models many blocks in a row are alike, as "auto" has them.
      const std::size_t alike = shape.layers > 12 ? plan.blocks.size() / 4 : 1;
      for (std::size_t i = 0; i < plan.blocks.size(); ++i) {
        if (i % alike != 0) {
          plan.blocks[i] = plan.blocks[i - 1];
          continue;
        }
        BlockRecompute& block = plan.blocks[i];
        block = {.qkv = one_of(2), .attended = one_of(2), .hidden = one_of(2)};
        if (one_of(3)) block = BlockRecompute::all();
        block.input = i > 0 && block.whole() && plan.blocks[i - 1].whole() && one_of(2);
      }
    }
    plan.partition_inputs = one_of(2);
    plan.outputs = one_of(2) ? BlockOutputs::kept : BlockOutputs::again;
    plan.check(shape.layers);
  }

  std::mt19937 random;
  DecoderShape shape;
  DecoderRows rows;
  DType dtype = DType::fp32;
  RecomputePlan plan;
};

TEST(ActivationPlaces, NeverTakeMoreThanPlacesByHandAndAreNearTheLeast) {
  constexpr unsigned kDraws = 600;
  double taken = 0;
  double least = 0;
  for (unsigned seed = 0; seed < kDraws; ++seed) {
    const Drawn drawn(seed);
    const DecoderMemory memory(drawn.shape, drawn.rows, drawn.dtype, drawn.plan);
    const std::int64_t hand = PlacesByHand::bytes(drawn.shape, drawn.rows, drawn.dtype, drawn.plan);
    const std::int64_t bound = memory.places().lower_bound();
    EXPECT_LE(memory.bytes(), hand) << "seed " << seed << ": " << drawn.plan.text();
    EXPECT_GE(memory.bytes(), bound);
    EXPECT_EQ(memory.bytes() % 64, 0);
    taken += static_cast<double>(memory.bytes()) / static_cast<double>(hand);
    least += static_cast<double>(memory.bytes()) / static_cast<double>(bound) - 1;
  }
  EXPECT_LT(taken / kDraws, 0.95);
  EXPECT_LT(least / kDraws, 0.02);
}

TEST(ActivationPlaces, OfDeepModelsNeverTakeMoreThanPlacesByHandEither) {
  for (unsigned seed = 0; seed < 120; ++seed) {
    const Drawn drawn(seed, {24, 48});
    const DecoderMemory memory(drawn.shape, drawn.rows, drawn.dtype, drawn.plan);
    EXPECT_LE(memory.bytes(), PlacesByHand::bytes(drawn.shape, drawn.rows, drawn.dtype, drawn.plan))
        << "seed " << seed << ": " << drawn.shape.layers << " blocks; " << drawn.plan.text();
  }
}

/// Twelve blocks of width 768, 4 x 512 tokens, fp32: docs/memory.md.
DecoderMemory twelve_blocks(const RecomputePlan& blocks, std::int64_t layers = 12) {
  const DecoderShape shape = decoder_shape(
      {{"layers", layers}, {"width", 768}, {"heads", 12}, {"context", 512}, {"vocabulary", 3894}});
  RecomputePlan plan = blocks;
  plan.outputs = BlockOutputs::again;
  return {shape,
          {.all = 2048, .own = 2048, .sequence = 512, .logits = 1024, .logit_columns = 3894},
          DType::fp32,
          plan};
}

TEST(ActivationPlaces, OfTwelveBlocksReachTheLeastOrNearlySo) {
  using enum BlockTensor;
  for (const RecomputePlan& plan : {RecomputePlan::full(12), RecomputePlan::grouped(12, 4),
                                    RecomputePlan::selective(12, {attended, hidden})}) {
    const DecoderMemory memory = twelve_blocks(plan);
    EXPECT_EQ(memory.bytes(), memory.places().lower_bound()) << plan.text();
  }
  const DecoderMemory none = twelve_blocks({});
  EXPECT_LE(none.bytes(), none.places().lower_bound() * 1004 / 1000);
}

// GELU's output takes the place of its input in backward: at the peak of full recompute 12 inputs,
// one block's tensors, dx and one of the two wide operands are alive, and nothing else of size.
TEST(ActivationPlaces, OfFullRecomputeHoldOneBlockAndTheInputs) {
  constexpr std::int64_t kRow = 2048 * 768 * 4;
  const LifetimePlan::Peak peak = twelve_blocks(RecomputePlan::full(12)).places().peak();
  // qkv 3, attended 1, middle 1, hidden 4; forward's GELU of the recompute 4, its norm 1; dx.
  const std::int64_t expected = (12 + 3 + 1 + 1 + 4 + 4 + 1 + 1) * kRow;
  EXPECT_GE(peak.bytes, expected);
  EXPECT_LT(peak.bytes, expected + kRow / 2);  // figures of fp32
}

// Placing takes time by the square of the number of places: blocks that live alike are one.
TEST(ActivationPlaces, OfManyBlocksAreAsFewAsOfTwelve) {
  EXPECT_EQ(twelve_blocks({}, 100).places().places().size(),
            twelve_blocks({}).places().places().size());
  EXPECT_EQ(twelve_blocks(RecomputePlan::full(100), 100).places().places().size(),
            twelve_blocks(RecomputePlan::full(12)).places().places().size());
}

}  // namespace
}  // namespace zero::testing
