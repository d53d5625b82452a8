// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#include "ops/op_listener.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <string>
#include <utility>
#include <vector>

#include "base/error.h"
#include "ops/ops.h"

// What a listener hears of each operation; on a planning device, which runs nothing.
namespace zero::testing {
namespace {

class Heard final : public OpListener {
 public:
  void begin(const OpCost& cost) override {
    EXPECT_FALSE(inside_) << cost.name << " inside another operation";
    inside_ = true;
    costs.push_back(cost);
  }
  void end() noexcept override { inside_ = false; }
  bool inside() const { return inside_; }

  std::vector<OpCost> costs;

 private:
  bool inside_ = false;
};

class Listeners : public ::testing::Test {
 protected:
  Listeners() : device_(planning::open()), ops_(make_ops(*device_)) { ops_->listen(&heard_); }

  View view(std::int64_t count, DType dtype = DType::bf16) {
    buffers_.push_back(device_->allocate(count, dtype, MemoryClass::other, "test"));
    return buffers_.back().view();
  }
  void expect(const char* name, double flop, double bytes) {
    ASSERT_EQ(heard_.costs.size(), 1U) << name;
    EXPECT_EQ(heard_.costs[0].name, name);
    EXPECT_EQ(heard_.costs[0].flop, flop) << name;
    EXPECT_EQ(heard_.costs[0].bytes, bytes) << name;
    EXPECT_FALSE(heard_.inside()) << name;
    heard_.costs.clear();
  }

  std::unique_ptr<Device> device_;
  std::unique_ptr<Ops> ops_;
  Heard heard_;
  std::vector<Buffer> buffers_;
};

TEST_F(Listeners, HearOfProductsWithTheirSizesAndArithmetic) {
  // 4 x 6 times 6 x 10, rows of y 16 elements apart: gaps cost nothing.
  const LinearShape s{4, 6, 10, WeightLayout::in_out, DType::bf16, DType::fp32, 16};
  ops_->prepare(s, Ops::LinearUse::training);
  LinearShape dense = s;
  dense.out_stride = 0;
  ops_->prepare(dense, Ops::LinearUse::training);
  ops_->prepare(MatrixShape{4, 10, DType::bf16});
  ops_->allocate_scratch();
  const View x = view(24), weight = view(60), bias = view(10), y = view(64), dense_y = view(40);
  const View dweight = view(60, DType::fp32);
  ops_->linear_forward(s, x, weight, View(), y);
  expect("linear_forward 6x10", 480, 2 * (24 + 60 + 40));
  ops_->linear_forward(dense, x, weight, bias, dense_y);
  expect("linear_forward 6x10", 480, 2 * (24 + 60 + 10 + 40));
  ops_->linear_backward_input(s, y, weight, x);
  expect("linear_backward_input 6x10", 480, 2 * (24 + 60 + 40));
  ops_->linear_backward_weight(s, x, y, dweight, Write::overwrite);
  expect("linear_backward_weight 6x10", 480, 2 * (24 + 40) + 4 * 60);
  ops_->linear_backward_weight(s, x, y, dweight, Write::add);
  expect("linear_backward_weight 6x10", 480, 2 * (24 + 40) + 8 * 60);
}

// On devices that cannot fuse them.
TEST_F(Listeners, HearOfTheTwoOperationsThatAFusedOneStandsFor) {
  const LinearShape s{4, 6, 10, WeightLayout::in_out, DType::bf16, DType::bf16};
  ops_->prepare(s, Ops::LinearUse::training);
  ops_->prepare(MatrixShape{4, 10, DType::bf16});
  ops_->allocate_scratch();
  const View x = view(24), weight = view(60), y = view(40), z = view(40);
  const auto names = [&] {
    std::vector<std::string> all;
    for (const OpCost& cost : heard_.costs) all.push_back(cost.name);
    heard_.costs.clear();
    return all;
  };
  ops_->linear_gelu_forward(s, {x, weight, view(10), z, y});
  EXPECT_THAT(names(), ::testing::ElementsAre("linear_forward 6x10", "gelu_forward"));
  ops_->linear_backward_parameters(s, x, y, weight, view(10));
  EXPECT_THAT(names(), ::testing::ElementsAre("linear_backward_weight 6x10", "column_sums"));
}

TEST_F(Listeners, HearOfRowsWithWhatEachReadsAndWrites) {
  const MatrixShape s{4, 8, DType::bf16};
  ops_->prepare(s);
  ops_->allocate_scratch();
  const View x = view(32), y = view(32), row = view(8), wide = view(64);
  const View two = view(8, DType::fp32), one = view(4, DType::fp32);
  ops_->column_sums(s, x, row);
  expect("column_sums", 0, 2 * (32 + 8));
  ops_->norm_forward(
      s, {.x = x, .delta = x, .sum = x, .weight = row, .bias = row, .y = y, .statistics = two});
  expect("layer_norm_forward", 0, 2 * (4 * 32 + 16) + 32);
  ops_->norm_apply(s, {.x = x, .weight = row, .bias = row, .y = y, .statistics = two});
  expect("layer_norm_apply", 0, 2 * (2 * 32 + 16) + 32);
  ops_->norm_backward(s, {x, two, row, y, x, row, row});
  expect("layer_norm_backward", 0, 2 * (4 * 32 + 24) + 32);
  ops_->norm_forward(s, {.x = x, .weight = row, .y = y, .statistics = one});
  expect("rms_norm_forward", 0, 2 * (2 * 32 + 8) + 16);
  ops_->norm_apply(s, {.x = x, .weight = row, .y = y, .statistics = one});
  expect("rms_norm_apply", 0, 2 * (2 * 32 + 8) + 16);
  ops_->norm_backward(s, {x, one, row, y, x, row});
  expect("rms_norm_backward", 0, 2 * (4 * 32 + 16) + 16);
  const HeadNormShape h{4, 2, 1, 2, DType::bf16};  // 3 heads of 2 in rows of 8
  ops_->prepare(h);
  ops_->allocate_scratch();
  const View two_of_head = view(2), heads = view(12, DType::fp32);
  ops_->head_norm_forward(h, {x, two_of_head, two_of_head, y, heads});
  expect("head_norm_forward", 0, 2 * (2 * 32 + 4) + 4 * 12);
  ops_->head_norm_forward(h,
                          {.x = x, .query_weight = two_of_head, .key_weight = two_of_head, .y = x});
  expect("head_norm_forward", 0, 2 * (2 * 24 + 4));
  ops_->head_norm_backward(h, {x, heads, two_of_head, two_of_head, y, two_of_head, two_of_head});
  expect("head_norm_backward", 0, 2 * (3 * 24 + 8) + 4 * 12);
  ops_->add(x, y, x);
  expect("add", 0, 2 * 3 * 32);
  ops_->scale(x, 2);
  expect("scale", 0, 2 * 2 * 32);
  ops_->gelu_forward(x, y);
  expect("gelu_forward", 0, 2 * 2 * 32);
  ops_->gelu_backward(s, x, y, y, row);
  expect("gelu_backward", 0, 2 * (4 * 32 + 8));
  ops_->gated_forward(s, Gate::silu, wide, y);
  expect("swiglu_forward", 0, 2 * (64 + 32));
  ops_->gated_backward(s, Gate::silu, wide, y);
  expect("swiglu_backward", 0, 2 * 2 * (64 + 32));
  ops_->gated_forward(s, Gate::gelu, wide, y);
  expect("geglu_forward", 0, 2 * (64 + 32));
  ops_->gated_backward(s, Gate::gelu, wide, y);
  expect("geglu_backward", 0, 2 * 2 * (64 + 32));
}

TEST_F(Listeners, HearOfAttentionAndTheEnds) {
  const AttentionShape a{2, 3, 2, 4, DType::bf16, 1};  // 2 x 6 pairs, 2 heads of 4
  const EmbeddingShape e{2, 3, 8, 11, DType::bf16};
  const RotaryShape r{2, 3, 1, 4, 16, DType::bf16};
  const LogitsShape l{6, 11, DType::bf16, 0, 64};
  ops_->prepare(a);
  ops_->prepare(e);
  ops_->allocate_scratch();
  const View qkv = view(96), out = view(48), logsumexp = view(12, DType::fp32);
  const View tokens = view(6, DType::i32), table = view(88), x = view(48);
  const View cosines = view(6, DType::fp32), losses = view(6, DType::fp64);
  const View logits = view(6 * 64), parts = view(18, DType::fp32);
  ops_->rotary_table(r, {.theta = 100}, cosines, cosines);
  expect("rotary_table", 0, 4 * 12);
  ops_->rotary(r, Turn::forward, qkv, cosines, cosines);
  expect("rotary", 0, 2 * 2 * 24 + 4 * 12);
  ops_->attention_forward(a, qkv, out, logsumexp);
  expect("attention_forward", 2 * 2 * 16 * 6, 2 * (96 + 48) + 48);
  ops_->attention_backward(a, qkv, out, logsumexp, out, qkv);
  expect("attention_backward", 5 * 2 * 16 * 6, 2 * 2 * (96 + 48) + 48);
  AttentionShape local = a;  // 2 x 5 pairs
  local.window = 2;
  ops_->attention_forward(local, qkv, out, logsumexp);
  expect("attention_forward", 2 * 2 * 16 * 5, 2 * (96 + 48) + 48);
  ops_->embedding_forward(e, tokens, table, view(24), x);
  expect("embedding_forward", 0, 24 + 3 * 2 * 48);
  ops_->embedding_backward(e, tokens, x, view(88, DType::fp32), View());
  expect("embedding_backward", 0, 24 + 2 * 48 + 4 * 4 * 48);
  ops_->cross_entropy_forward(l, logits, tokens, losses);
  expect("cross_entropy_forward", 0, 2 * 66 + 24 + 48);
  ops_->cross_entropy_backward(l, logits, tokens, 1, losses);
  expect("cross_entropy_backward", 0, 2 * 2 * 66 + 24 + 48);
  ops_->softmax_part(l, logits, tokens, parts);
  expect("softmax_part", 0, 2 * 66 + 24 + 72);
  ops_->fold_softmax(6, 1, parts, losses);
  expect("fold_softmax", 0, 72 + 48);
  ops_->cross_entropy_gradient(l, logits, tokens, parts, 1);
  expect("cross_entropy_gradient", 0, 2 * 2 * 66 + 24 + 72);
  ops_->sum(losses, view(1, DType::fp64));
  expect("sum of losses", 0, 56);
}

/// The memory that operations use, in the order in which it is told.
class Touched final : public OpListener {
 public:
  using Touch = std::pair<const void*, Access>;
  void begin(const OpCost& /*cost*/) override { touches_.clear(); }
  void end() noexcept override {}
  void touches(const View& values, Access access) override {
    touches_.emplace_back(values.data(), access);
  }
  std::vector<Touch> touches_;
};

TEST_F(Listeners, HearWhatIsReadBeforeWhatIsWrittenAndOfNothingEmpty) {
  Touched touched;
  ops_->listen(&touched);
  const MatrixShape s{4, 8, DType::bf16};
  const LinearShape linear{4, 8, 8, WeightLayout::in_out, DType::bf16, DType::fp32};
  ops_->prepare(s);
  ops_->prepare(linear, Ops::LinearUse::training);
  ops_->allocate_scratch();
  const View x = view(32), y = view(32), row = view(8);
  const View one = view(4, DType::fp32), gradient = view(64, DType::fp32);
  const auto read = [](const View& of) { return Touched::Touch(of.data(), Access::read); };
  const auto write = [](const View& of) { return Touched::Touch(of.data(), Access::write); };
  const auto update = [](const View& of) { return Touched::Touch(of.data(), Access::update); };
  using ::testing::ElementsAre;
  ops_->norm_forward(s, {.x = x, .weight = row, .y = y, .statistics = one});
  EXPECT_THAT(touched.touches_, ElementsAre(read(x), read(row), write(y), write(one)));
  ops_->norm_apply(s, {.x = x, .weight = row, .y = y, .statistics = one});
  EXPECT_THAT(touched.touches_, ElementsAre(read(x), read(row), read(one), write(y)));
  ops_->gelu_backward(s, x, y, View(), row);
  EXPECT_THAT(touched.touches_, ElementsAre(read(x), update(y), write(row)));
  ops_->gelu_backward(s, x, y, x, row);
  EXPECT_THAT(touched.touches_, ElementsAre(update(x), update(y), write(row)));
  ops_->add(x, y, x);
  EXPECT_THAT(touched.touches_, ElementsAre(read(x), read(y), write(x)));
  ops_->linear_backward_weight(linear, x, y, gradient, Write::overwrite);
  EXPECT_THAT(touched.touches_, ElementsAre(read(x), read(y), write(gradient)));
  ops_->linear_backward_weight(linear, x, y, gradient, Write::add);
  EXPECT_THAT(touched.touches_, ElementsAre(read(x), read(y), update(gradient)));
}

TEST_F(Listeners, HearOfNothingThatIsRefusedAndOfNothingAfterTheyAreTakenAway) {
  EXPECT_THROW(ops_->gelu_forward(view(4), view(5)), Error);
  EXPECT_TRUE(heard_.costs.empty());
  ops_->listen(nullptr);
  ops_->gelu_forward(view(4), view(4));
  EXPECT_TRUE(heard_.costs.empty());
}

/// Throws at every operation, or at its first operand.
class Thrower final : public OpListener {
 public:
  void begin(const OpCost& cost) override {
    if (at_begin) fail("{}", cost.name);
  }
  void end() noexcept override { ++ends; }
  void touches(const View& /*values*/, Access /*access*/) override { fail("an operand"); }

  bool at_begin = false;
  int ends = 0;
};

TEST_F(Listeners, ThatThrowHearTheEndOfWhatHasBegun) {
  Thrower thrower;
  ops_->listen(&thrower);
  EXPECT_THROW(ops_->gelu_forward(view(4), view(4)), Error);
  EXPECT_EQ(thrower.ends, 1);
  thrower.at_begin = true;
  EXPECT_THROW(ops_->gelu_forward(view(4), view(4)), Error);
  EXPECT_EQ(thrower.ends, 1);
}

}  // namespace
}  // namespace zero::testing
