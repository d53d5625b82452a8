// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#include <gmock/gmock.h>

#include "model/parallel_linear.h"
#include "model/vocabulary_parallel.h"
#include "tests/errors.h"
#include "tests/model/tensor_rig.h"
#include "tests/support/test_device.h"

// Each tensor-parallel layer over any group gives the values of the plain operation on one rank.
namespace zero::testing {
namespace {

using ::testing::HasSubstr;

std::vector<Group> groups(DType dtype) {
  std::vector<Group> all;
  for (const int ranks : {2, 3, 4}) {
    for (const bool own_rows : {false, true}) {
      for (const int chunks : {1, 3}) {
        all.push_back({.ranks = ranks,
                       .options = {.sequence_parallel = own_rows, .chunks = chunks},
                       .dtype = dtype});
      }
    }
  }
  return all;
}

class TensorLayers : public ::testing::TestWithParam<DType> {
 protected:
  /// `body` gives the same on every group as on one rank.
  void expect_alike(std::int64_t rows, const std::function<void(Rig&)>& body) const {
    const Tensors expected = together({.dtype = dtype_}, rows, body);
    for (const Group& group : groups(dtype_)) {
      const Tensors found = together(group, rows, body);
      ASSERT_EQ(found.size(), expected.size());
      for (const auto& [name, values] : expected) {
        // Parts of a sum in bf16 or fp16 are rounded each.
        expect_near(found.at(name), values, 2 * rounding(dtype_), name + ", " + group.label());
      }
    }
  }
  DType dtype_ = GetParam();
};

void column(Rig& rig, WeightLayout layout) {
  const std::int64_t in = 10;
  const std::int64_t out = 7;
  const LinearShape whole{rig.tensor.rows(), in, out, layout, rig.dtype, rig.dtype};
  const ColumnParallelLinear layer(rig.tensor, {.whole = whole, .at = {0, 1}, .name = "up"});
  layer.prepare(*rig.h.ops);
  rig.h.ops->prepare(MatrixShape{whole.rows, out, rig.dtype});
  const UnitId unit = rig.seal({layer.weight("w", init::normal(0.5F)), layer.bias("b")});
  const auto mine = even_range(out, rig.tensor.rank(), rig.tensor.ranks());
  const auto columns = Rig::indices({mine});
  const auto rows = up_to(whole.rows);
  const View x = rig.operand(1, in, rig.own_rows(), up_to(in));
  const View gathered = rig.all_of(x, in);
  const View y = rig.empty(whole.rows, mine.count);
  {
    const ParameterLease lease = rig.engine.forward(unit);
    layer.forward(*rig.h.ops, lease, {.x = x, .gathered = gathered, .y = y});
    rig.put("y", y, out, rows, columns);
  }
  const GradientLease lease = rig.engine.backward(unit);
  const View dx = rig.empty(rig.tensor.own_rows(), in);
  const View dy = rig.operand(2, out, rows, columns);
  layer.backward(*rig.h.ops, lease,
                 {.x = x,
                  .gathered = gathered,
                  .dy = dy,
                  .partial = rig.all_of(dx, in),
                  .dx = dx,
                  .dbias = layer.bias_gradient(lease)});
  rig.put("dx", dx, in, rig.own_rows(), up_to(in));
  rig.put_gradients(lease);
}

TEST_P(TensorLayers, ColumnParallelLinearIsTheLinearLayer) {
  for (const WeightLayout layout : {WeightLayout::in_out, WeightLayout::out_in}) {
    expect_alike(13, [&](Rig& rig) { column(rig, layout); });
  }
}

// Both ranks compute the first output, from halves of the rows of x: its gradient is their sum.
TEST_P(TensorLayers, OutputsThatSeveralRanksHoldHaveOneGradient) {
  const auto body = [](Rig& rig) {
    const std::int64_t in = 3;
    const int rank = rig.tensor.rank();
    const LinearShape whole{4, in, 3, WeightLayout::out_in, rig.dtype, rig.dtype};
    const bool alone = rig.tensor.ranks() == 1;
    ColumnParallelLinear::Options options{.whole = whole, .at = {0, 1}, .name = "kv"};
    if (!alone) {
      options.outputs = {{0, 1, rank}, {1 + rank, 1, 0}};
      options.shared = {&rig.tensor.group(), {0, 1}};
    }
    const ColumnParallelLinear layer(rig.tensor, options);
    layer.prepare(*rig.h.ops);
    rig.h.ops->prepare(MatrixShape{4, layer.shape().out, rig.dtype});
    const UnitId unit = rig.seal({layer.weight("w", init::normal(0.5F)), layer.bias("b")});
    { const ParameterLease lease = rig.engine.forward(unit); }
    const GradientLease lease = rig.engine.backward(unit);
    const View x = rig.operand(1, in, up_to(4), up_to(in));
    const View dx = rig.empty(4, in);
    // dy of the shared output: each rank has that of its own two rows.
    Values dy;
    for (std::int64_t r = 0; r < 4; ++r) {
      const bool mine = alone || (r < 2) == (rank == 0);
      dy.push_back(mine ? 0.5 * static_cast<double>(r + 1) : 0.0);
      for (int o = 0; o < (alone ? 2 : 1); ++o) dy.push_back(alone ? 1.0 + o : 1.0 + rank);
    }
    const View of_outputs = rig.h.tensor(dy, rig.dtype);
    layer.backward(*rig.h.ops, lease,
                   {.x = x,
                    .gathered = x,
                    .dy = of_outputs,
                    .partial = dx,
                    .dx = dx,
                    .dbias = layer.bias_gradient(lease)});
    rig.put_gradients(lease);
  };
  const Tensors expected = together({.dtype = dtype_}, 4, body);
  const Tensors found = together({.ranks = 2, .dtype = dtype_}, 4, body);
  for (const auto& [name, values] : expected) {
    expect_near(found.at(name), values, 2 * rounding(dtype_), name);
  }
}

void row(Rig& rig, WeightLayout layout) {
  const std::int64_t in = 7;
  const std::int64_t out = 10;
  const LinearShape whole{rig.tensor.rows(), in, out, layout, rig.dtype, rig.dtype};
  const RowParallelLinear layer(rig.tensor, {.whole = whole, .at = {0, 1}, .name = "down"});
  layer.prepare(*rig.h.ops);
  rig.h.ops->prepare(MatrixShape{whole.rows, out, rig.dtype});
  ParameterSpec bias = layer.bias("b");
  bias.init = init::constant(3);  // counted once
  const UnitId unit = rig.seal({layer.weight("w", init::normal(0.5F)), bias});
  const auto mine = even_range(in, rig.tensor.rank(), rig.tensor.ranks());
  const auto columns = Rig::indices({mine});
  const auto rows = up_to(whole.rows);
  const View x = rig.operand(1, in, rows, columns);
  const View y = rig.empty(rig.tensor.own_rows(), out);
  {
    const ParameterLease lease = rig.engine.forward(unit);
    layer.forward(*rig.h.ops, lease, {.x = x, .partial = rig.all_of(y, out), .y = y});
    rig.put("y", y, out, rig.own_rows(), up_to(out));
  }
  const GradientLease lease = rig.engine.backward(unit);
  const View dy = rig.operand(2, out, rig.own_rows(), up_to(out));
  const View gathered = rig.all_of(dy, out);
  const View dx = rig.empty(whole.rows, mine.count);
  layer.backward_input(*rig.h.ops, lease, {.dy = dy, .gathered = gathered, .dx = dx});
  layer.backward_parameters(*rig.h.ops, lease, x, gathered);
  rig.put("dx", dx, in, rows, columns);
  rig.put_gradients(lease);
}

TEST_P(TensorLayers, RowParallelLinearIsTheLinearLayerAndAddsItsBiasOnce) {
  for (const WeightLayout layout : {WeightLayout::in_out, WeightLayout::out_in}) {
    expect_alike(13, [&](Rig& rig) { row(rig, layout); });
  }
}

// GELU between the two, which each may take into its product.
void mlp(Rig& rig) {
  const std::int64_t width = 6, hidden = 11;
  const std::int64_t rows = rig.tensor.rows();
  const LinearShape of_up{rows, width, hidden, WeightLayout::in_out, rig.dtype, rig.dtype};
  const LinearShape of_down{rows, hidden, width, WeightLayout::in_out, rig.dtype, rig.dtype};
  const ColumnParallelLinear up(rig.tensor, {.whole = of_up, .at = {0, 1}, .name = "up"});
  const RowParallelLinear down(rig.tensor, {.whole = of_down, .at = {2, 3}, .name = "down"});
  up.prepare(*rig.h.ops);
  down.prepare(*rig.h.ops);
  rig.h.ops->prepare(MatrixShape{rows, hidden, rig.dtype});
  const Init normal = init::normal(0.5F);
  const UnitId unit = rig.seal(
      {up.weight("up.w", normal), up.bias("up.b"), down.weight("down.w", normal), down.bias("b")});
  const std::int64_t mine = up.shape().out;
  const View x = rig.operand(1, width, rig.own_rows(), up_to(width));
  const View gathered = rig.all_of(x, width);
  const View z = rig.empty(rows, mine);
  const View y = rig.empty(rows, mine);
  const View sum = rig.empty(rig.tensor.own_rows(), width);
  {
    const ParameterLease lease = rig.engine.forward(unit);
    up.forward(*rig.h.ops, lease, {x, gathered, z, y});
    down.forward(*rig.h.ops, lease, {.x = y, .partial = rig.all_of(sum, width), .y = sum});
    rig.put("y", sum, width, rig.own_rows(), up_to(width));
  }
  const GradientLease lease = rig.engine.backward(unit);
  const View dy = rig.operand(2, width, rig.own_rows(), up_to(width));
  const View dx = rig.empty(rig.tensor.own_rows(), width);
  const View all_dy = rig.all_of(dy, width);
  const View all_dx = rig.all_of(dx, width);
  const View dz = rig.empty(rows, mine);
  const View again = rig.empty(rows, mine);
  down.backward_input(*rig.h.ops, lease, {.dy = dy, .gathered = all_dy, .dx = dz},
                      {.z = z, .x = again, .dbias = up.bias_gradient(lease)});
  down.backward_parameters(*rig.h.ops, lease, again, all_dy);
  up.backward(*rig.h.ops, lease, {x, gathered, dz, all_dx, dx});
  rig.put("dx", dx, width, rig.own_rows(), up_to(width));
  rig.put_gradients(lease);
}

TEST_P(TensorLayers, GeluBetweenTwoLayersIsThatOfOneRank) { expect_alike(13, mlp); }

void embedding(Rig& rig) {
  const std::int64_t width = 5;
  const EmbeddingShape whole{3, 5, width, 11, rig.dtype};
  const VocabularyParallelEmbedding layer(rig.tensor, whole, {.tokens = 0, .positions = 1});
  layer.prepare(*rig.h.ops);
  const Init normal = init::normal(1.0F);
  const UnitId unit =
      rig.seal({layer.tokens("wte", normal), {.name = "wpe", .shape = {6, width}, .init = normal}});
  const View tokens = rig.h.tokens(random_tokens(15, 11, 3));
  const View x = rig.empty(rig.tensor.own_rows(), width);
  {
    const ParameterLease lease = rig.engine.forward(unit);
    layer.forward(*rig.h.ops, lease, {.tokens = tokens, .partial = rig.all_of(x, width), .x = x});
    rig.put("x", x, width, rig.own_rows(), up_to(width));
  }
  if (rig.dtype != DType::fp32) return;  // a unit used once has gradients of the dtype
  const GradientLease lease = rig.engine.backward(unit);
  for (const int i : {0, 1}) {
    rig.h.device->kernels().zero(rig.h.device->compute(), lease.gradient(i));
  }
  const View dx = rig.operand(2, width, rig.own_rows(), up_to(width));
  layer.backward(*rig.h.ops, lease,
                 {.tokens = tokens, .dx = dx, .gathered = rig.all_of(dx, width)});
  rig.put_gradients(lease);
}

TEST_P(TensorLayers, VocabularyParallelEmbeddingIsTheEmbeddingToTheBit) {
  const Tensors expected = together({.dtype = dtype_}, 15, embedding);
  for (const Group& group : groups(dtype_)) {
    EXPECT_EQ(together(group, 15, embedding), expected) << group.label();
  }
}

void head(Rig& rig) {
  const std::int64_t width = 6;
  const std::int64_t vocabulary = 23;
  const std::int64_t rows = rig.tensor.rows();
  const VocabularyParallelHead layer(
      rig.tensor, {.rows = rows, .in = width, .out = vocabulary, .dtype = rig.dtype});
  layer.prepare(*rig.h.ops);
  const UnitId unit = rig.seal({layer.weight("w", init::normal(1.0F))});
  const View x = rig.operand(1, width, rig.own_rows(), up_to(width));
  const auto mine = even_range(vocabulary, rig.tensor.rank(), rig.tensor.ranks());
  const auto most = VocabularyParallelHead::rows_at_a_time(rig.tensor, vocabulary, rig.dtype);
  const VocabularyParallelHead::Buffers buffers{
      .x = x,
      .gathered = rig.all_of(x, width),
      .logits = rig.h.empty(
          most * VocabularyParallelHead::padded_columns(*rig.h.device, mine.count), rig.dtype),
      .parts =
          rig.h.empty(VocabularyParallelHead::parts_count(most, rig.tensor.ranks()), DType::fp32),
      .losses = rig.h.empty(rows, DType::fp64)};
  const View targets = rig.h.tokens(random_tokens(rows, 23, 5));
  {
    const ParameterLease lease = rig.engine.forward(unit);
    layer.evaluate(*rig.h.ops, buffers, lease.at(0), targets);
    rig.put("evaluated losses", buffers.losses, 1, up_to(rows), {0});
  }
  const GradientLease lease = rig.engine.backward(unit);
  const View dx = rig.empty(rig.tensor.own_rows(), width);
  const View gradient = rig.h.empty(mine.count * width, DType::fp32);
  layer.train(*rig.h.ops, buffers,
              {.weight = lease.parameter(0),
               .gradient = gradient,
               .scale = 0.5F,
               .partial = rig.all_of(dx, width),
               .dx = dx},
              targets);
  rig.put("losses", buffers.losses, 1, up_to(rows), {0});
  rig.put("dx", dx, width, rig.own_rows(), up_to(width));
  rig.put("gradient", gradient, width, Rig::indices({mine}), up_to(width));
}

TEST_P(TensorLayers, VocabularyParallelHeadIsTheLossOfTheWholeVocabulary) {
  // More rows than one chunk of logits.
  for (const std::int64_t rows : {13, 1100}) expect_alike(rows, head);
}

TEST_P(TensorLayers, DoNotDependOnOverlapOrOnWhenStreamsRun) {
  for (const auto& body : std::vector<std::function<void(Rig&)>>{
           [](Rig& rig) { column(rig, WeightLayout::out_in); },
           [](Rig& rig) { row(rig, WeightLayout::in_out); }, mlp, head}) {
    for (const bool own_rows : {false, true}) {
      Group group{
          .ranks = 2, .options = {.sequence_parallel = own_rows, .chunks = 3}, .dtype = dtype_};
      const Tensors expected = together(group, 13, body);
      group.options.overlap = false;
      EXPECT_EQ(together(group, 13, body), expected) << group.label();
      group.options.overlap = true;
      for (const std::uint64_t seed : {0U, 1U, 2U, 3U}) {
        const StreamOrder order{seed == 0 ? StreamOrder::Policy::lazy : StreamOrder::Policy::seeded,
                                seed};
        group.open = [order] { return open(order); };
        EXPECT_EQ(together(group, 13, body), expected) << group.label() << ", seed " << seed;
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Types, TensorLayers, ::testing::ValuesIn(kComputed),
                         [](const auto& tested) { return std::string(name_of(tested.param)); });

TEST(RowCut, GivesEveryRowOfEveryChunkToOneRank) {
  for (const std::int64_t rows : {1, 7, 64, 65}) {
    for (const int ranks : {1, 2, 3, 8}) {
      for (const int chunks : {1, 2, 5}) {
        const RowCut cut(rows, ranks, chunks);
        std::int64_t next = 0;
        std::vector<std::int64_t> own(static_cast<std::size_t>(ranks));
        for (int k = 0; k < cut.chunks(); ++k) {
          EXPECT_EQ(cut.chunk(k).begin, next);
          for (int rank = 0; rank < ranks; ++rank) {
            EXPECT_EQ(cut.share(k, rank).begin, next);
            next += cut.share(k, rank).count;
            auto& of_rank = own[static_cast<std::size_t>(rank)];
            EXPECT_EQ(cut.own(k, rank).begin, of_rank);
            of_rank += cut.own(k, rank).count;
            EXPECT_TRUE(rows < ranks || cut.share(k, rank).count > 0);
          }
        }
        EXPECT_EQ(next, rows);
        for (int rank = 0; rank < ranks; ++rank) {
          EXPECT_EQ(cut.own_rows(rank), own[static_cast<std::size_t>(rank)]);
        }
      }
    }
  }
}

TEST(RowCut, FindsTheChunksOfAnyRows) {
  const RowCut cut(100, 2, 3);  // 34, 33, 33
  for (std::int64_t begin = 0; begin < 100; begin += 7) {
    for (std::int64_t count = 1; begin + count <= 100; count += 13) {
      std::int64_t next = begin;
      for (const RowCut::Piece& piece : cut.pieces({begin, count})) {
        const Slices::Range chunk = cut.chunk(piece.chunk);
        EXPECT_EQ(piece.rows.begin, next);
        EXPECT_GE(piece.rows.begin, chunk.begin);
        next += piece.rows.count;
        EXPECT_LE(next, chunk.begin + chunk.count);
        EXPECT_EQ(piece.ends_chunk, next == chunk.begin + chunk.count);
      }
      EXPECT_EQ(next, begin + count);
    }
  }
}

TEST(TensorParallel, WhatCannotBeCutIsNamedWithWhatWould) {
  local::run(3, [](Communicator& group) {
    const auto device = cpu::open({.threads = 1});
    EXPECT_THAT(error_of([&] { TensorParallel(group, *device, 2, {.sequence_parallel = true}); }),
                HasSubstr("sequence parallelism cuts the 2 row(s) of a micro-batch (batch x "
                          "sequence) over 3 tensor ranks; give at least one a rank"));
    EXPECT_THAT(error_of([&] { TensorParallel(group, *device, 2, {.chunks = 0}); }),
                HasSubstr("tensor parallelism in 0 chunks, expected at least 1"));
    TensorParallel tensor(group, *device, 4, {});
    EXPECT_THAT(error_of([&] {
                  ColumnParallelLinear(tensor, {.whole = {4, 8, 2}, .at = {}, .name = "up"});
                }),
                HasSubstr("up outputs: 2 cannot be cut over 3 tensor ranks, each of which needs "
                          "one; use at most 2 tensor ranks"));
    EXPECT_THAT(error_of([&] {
                  ColumnParallelLinear(
                      tensor,
                      {.whole = {4, 8, 6}, .at = {}, .name = "qkv", .shared = {&group, {0, 2}}});
                }),
                HasSubstr("qkv: outputs that several tensor ranks hold (fewer heads of keys and "
                          "values than ranks) need a weight of layout (out, in), not (in, out)"));
    std::vector<float> values(8);
    const View rows = View::of(std::span(values));
    EXPECT_THAT(error_of([&] {
                  tensor.sum(0, {rows, rows.slice(0, 4), 2}, "up");
                }),
                HasSubstr("sum(up): all rows hold 8 x fp32 and this rank's own 4 x fp32, expected "
                          "4 and 4 rows of 2"));
    std::vector<float> others(8);
    EXPECT_THAT(error_of([&] {
                  tensor.sum(0, {rows, View::of(std::span(others)), 2}, "up");
                }),
                HasSubstr("without sequence parallelism a rank's own rows are all of them"));
  });
}

}  // namespace
}  // namespace zero::testing
