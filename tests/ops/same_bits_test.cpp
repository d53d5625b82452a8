// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#include <cstddef>

#include "tests/ops/ops_harness.h"
#include "tests/ops/padded_logits.h"
#include "tests/support/test_device.h"

// Every kernel gives the same bits on 1, 2 and 3 threads, and on streams that run the work later.
namespace zero::testing {
namespace {

class SameBits : public ::testing::TestWithParam<DType> {
 protected:
  using Body = std::function<std::vector<View>(Harness&)>;

  // What `body` leaves, concatenated; NaN compares equal to nothing, so it cannot hide.
  static Values run(Harness& h, const Body& body) {
    Values all;
    for (const View& view : body(h)) {
      const Values values = h.read(view);
      all.insert(all.end(), values.begin(), values.end());
    }
    return all;
  }
  static void expect_same(const Body& body) {
    Harness one(1);
    const Values expected = run(one, body);
    for (const int threads : {2, 3}) {
      Harness more(threads);
      EXPECT_EQ(run(more, body), expected) << threads << " threads";
    }
    Harness lazy(open({.policy = StreamOrder::Policy::lazy}));
    EXPECT_EQ(run(lazy, body), expected) << "lazy streams";
    Harness seeded(open({.policy = StreamOrder::Policy::seeded, .seed = 7}));
    EXPECT_EQ(run(seeded, body), expected) << "a seeded order";
  }
  DType dtype_ = GetParam();
};

TEST_P(SameBits, Linear) {
  expect_same([&](Harness& h) {
    // GPT-2's proportions, and a long inner dimension that a library might cut.
    const LinearShape shape{130, 96, 384, WeightLayout::in_out, dtype_, dtype_};
    const LinearShape head{32, 64, 4099, WeightLayout::out_in, dtype_, DType::fp32};
    std::vector<View> results;
    for (const LinearShape& s : {shape, head}) {
      h.ops->prepare(s, Ops::LinearUse::training);
      h.ops->allocate_scratch();
      const View x = h.tensor(random_values(s.rows * s.in, 1), dtype_);
      const View w = h.tensor(random_values(s.in * s.out, 2), dtype_);
      const View dy = h.tensor(random_values(s.rows * s.out, 3), dtype_);
      const View bias = h.tensor(random_values(s.out, 4), dtype_);
      const View y = h.empty(s.rows * s.out, dtype_);
      const View dx = h.empty(s.rows * s.in, dtype_);
      const View dw = h.empty(s.in * s.out, s.weight_gradient);
      h.ops->linear_forward(s, x, w, bias, y);
      h.ops->linear_backward_input(s, dy, w, dx);
      h.ops->linear_backward_weight(s, x, dy, dw, Write::overwrite);
      h.ops->linear_backward_weight(s, x, dy, dw, Write::add);
      h.device->compute().synchronize();  // before the scratch is replaced
      results.insert(results.end(), {y, dx, dw});
    }
    return results;
  });
}

TEST_P(SameBits, NormGeluSums) {
  expect_same([&](Harness& h) {
    const MatrixShape s{333, 77, dtype_};
    const std::int64_t n = s.rows * s.columns;
    h.ops->prepare(s);
    h.ops->allocate_scratch();
    const View x = h.tensor(random_values(n, 1), dtype_);
    const View delta = h.tensor(random_values(n, 2), dtype_);
    const View gamma = h.tensor(random_values(s.columns, 3), dtype_);
    const View beta = h.tensor(random_values(s.columns, 4), dtype_);
    const View sum = h.empty(n, dtype_);
    const View y = h.empty(n, dtype_);
    const View statistics = h.empty(2 * s.rows, DType::fp32);
    const View dx = h.tensor(random_values(n, 5), dtype_);
    const View dgamma = h.empty(s.columns, dtype_);
    const View dbeta = h.empty(s.columns, dtype_);
    const View bias = h.empty(s.columns, dtype_);
    const View columns = h.empty(s.columns, DType::fp32);
    const View z = h.empty(n, dtype_);
    h.ops->norm_forward(s, {x, delta, sum, gamma, beta, y, statistics});
    h.ops->norm_backward(s, {sum, statistics, gamma, delta, dx, dgamma, dbeta});
    h.ops->gelu_forward(y, z);
    h.ops->gelu_backward(s, y, dx, z, bias);
    h.ops->column_sums(s, dx, columns);
    h.ops->add(z, dx, z);
    h.ops->scale(z, 1.7F);
    return std::vector<View>{y, statistics, dx, dgamma, dbeta, bias, columns, z};
  });
}

TEST_P(SameBits, Attention) {
  expect_same([&](Harness& h) {
    const AttentionShape s{2, 150, 3, 16, dtype_};
    const std::int64_t n = 2 * 150 * 48;
    h.ops->prepare(s);
    h.ops->allocate_scratch();
    const View qkv = h.tensor(random_values(3 * n, 1), dtype_);
    const View dout = h.tensor(random_values(n, 2), dtype_);
    const View out = h.empty(n, dtype_);
    const View logsumexp = h.empty(2 * 150 * 3, DType::fp32);
    const View dqkv = h.empty(3 * n, dtype_);
    h.ops->attention_forward(s, qkv, out, logsumexp);
    h.ops->attention_backward(s, qkv, out, logsumexp, dout, dqkv);
    return std::vector<View>{out, logsumexp, dqkv};
  });
}

TEST_P(SameBits, EmbeddingAndLoss) {
  expect_same([&](Harness& h) {
    const EmbeddingShape s{2, 50, 200, 11, dtype_};
    const View tokens = h.tokens(random_tokens(100, 11, 1));
    const View table = h.tensor(random_values(11 * 200, 2), dtype_);
    const View positions = h.tensor(random_values(50 * 200, 3), dtype_);
    const View x = h.empty(100 * 200, dtype_);
    const View dtable = h.tensor(random_values(11 * 200, 4), DType::fp32);
    const View dpositions = h.tensor(random_values(50 * 200, 5), DType::fp32);
    const View losses = h.empty(100, DType::fp64);
    const View total = h.empty(1, DType::fp64);
    h.ops->prepare(s);
    h.ops->allocate_scratch();
    h.ops->embedding_forward(s, tokens, table, positions, x);
    h.ops->cross_entropy_backward({100, 200, dtype_}, x, tokens, 0.01F, losses);
    h.ops->embedding_backward(s, tokens, x, dtable, dpositions);
    h.ops->sum(losses, total);
    return std::vector<View>{x, dtable, dpositions, losses, total};
  });
}

// Norm, gate, rotation and grouped attention, one after another.
TEST_P(SameBits, DecoderRows) {
  expect_same([&](Harness& h) {
    const MatrixShape s{300, 80, dtype_};
    const AttentionShape a{2, 150, 6, 8, dtype_, 2, 50};
    const RotaryShape r{2, 150, 8, 8, 80, dtype_};
    h.ops->prepare(s);
    const HeadNormShape n{300, 6, 2, 8, dtype_};
    h.ops->prepare(a);
    h.ops->prepare(n);
    h.ops->allocate_scratch();
    const View x = h.tensor(random_values(300 * 80, 1), dtype_);
    const View weight = h.tensor(random_values(80, 2), dtype_);
    const View qkv = h.empty(300 * 80, dtype_);
    const View statistics = h.empty(300, DType::fp32);
    const View cosines = h.empty(r.table(), DType::fp32);
    const View sines = h.empty(r.table(), DType::fp32);
    const View out = h.empty(300 * 48, dtype_);
    const View logsumexp = h.empty(300 * 6, DType::fp32);
    const View dqkv = h.empty(300 * 80, dtype_);
    const View dx = h.tensor(random_values(300 * 80, 3), dtype_);
    const View dweight = h.empty(80, dtype_);
    const View gate = h.tensor(random_values(300 * 96, 4), dtype_);
    h.ops->rotary_table(r, {.theta = 100}, cosines, sines);
    h.ops->norm_forward(s, {.x = x, .weight = weight, .y = qkv, .statistics = statistics});
    const View heads = h.empty(300 * 80, dtype_);
    const View figures = h.empty(300 * 8, DType::fp32);
    const View one = weight.slice(0, 8), two = weight.slice(8, 8);
    const View done = h.empty(8, dtype_), dtwo = h.empty(8, dtype_);
    h.ops->head_norm_forward(n, {qkv, one, two, heads, figures});
    h.ops->head_norm_backward(n, {qkv, figures, one, two, heads, done, dtwo});
    h.ops->rotary(r, Turn::forward, qkv, cosines, sines);
    h.ops->attention_forward(a, qkv, out, logsumexp);
    const View dout = h.tensor(random_values(300 * 48, 5), dtype_);
    h.ops->attention_backward(a, qkv, out, logsumexp, dout, dqkv);
    h.ops->rotary(r, Turn::backward, dqkv, cosines, sines);
    h.ops->norm_backward(s, {x, statistics, weight, dqkv, dx, dweight});
    h.ops->gated_backward({300, 48, dtype_}, Gate::silu, gate, out);
    h.ops->gated_backward({300, 48, dtype_}, Gate::gelu, gate, out);
    return std::vector<View>{qkv, logsumexp, dqkv,    dx,   dweight, gate,
                             out, heads,     figures, done, dtwo};
  });
}

TEST_P(SameBits, WhereRowsOfLogitsArePadded) {
  for (const int threads : {1, 3}) {
    Harness dense(threads);
    Harness padded(threads);
    EXPECT_EQ(head_with_rows_apart(padded, GetParam(), 64),
              head_with_rows_apart(dense, GetParam(), 45));
  }
}

// Cheap figures for large operands.
Values figures(std::int64_t count, std::uint32_t seed) {
  std::uint32_t state = seed;
  Values values;
  for (std::int64_t i = 0; i < count; ++i) {
    state = state * 1664525U + 1013904223U;
    values.push_back(static_cast<float>(state >> 8) * 0x1p-23F - 1.0F);
  }
  return values;
}

// The bytes of y, dx and dW of one linear layer.
std::vector<std::byte> linear_bytes(const LinearShape& s, int threads) {
  Harness h(threads);
  h.ops->prepare(s, Ops::LinearUse::training);
  h.ops->allocate_scratch();
  const View x = h.tensor(figures(s.rows * s.in, 1), s.dtype);
  const View weight = h.tensor(figures(s.in * s.out, 2), s.dtype);
  const View dy = h.tensor(figures(s.rows * s.out, 3), s.dtype);
  const View y = h.empty(s.rows * s.out, s.dtype);
  const View dx = h.empty(s.rows * s.in, s.dtype);
  const View dweight = h.empty(s.in * s.out, s.weight_gradient);
  h.ops->linear_forward(s, x, weight, View(), y);
  h.ops->linear_backward_input(s, dy, weight, dx);
  h.ops->linear_backward_weight(s, x, dy, dweight, Write::overwrite);
  h.ops->linear_backward_weight(s, x, dy, dweight, Write::add);
  std::vector<std::byte> bytes;
  for (const View& view : {y, dx, dweight}) {
    const std::vector<std::byte> of_view = h.bytes(view);
    bytes.insert(bytes.end(), of_view.begin(), of_view.end());
  }
  return bytes;
}

const std::vector<LinearShape> kGpt2Sizes{
    {1024, 768, 768, WeightLayout::in_out, DType::fp32, DType::fp32},
    {256, 768, 3072, WeightLayout::in_out, DType::fp32, DType::fp32},
    {72, 768, 7001, WeightLayout::out_in, DType::fp32, DType::fp32}};

TEST(SameBitsAtGpt2sSizes, LinearOnAnyThreads) {
  for (const DType dtype : {DType::fp32, DType::bf16, DType::fp16}) {
    for (LinearShape shape : kGpt2Sizes) {
      shape.dtype = dtype;
      const std::vector<std::byte> expected = linear_bytes(shape, 1);
      for (const int threads : {2, 3}) {
        EXPECT_TRUE(linear_bytes(shape, threads) == expected)
            << threads << " threads, " << label(dtype) << " " << shape.rows << " x " << shape.in
            << " x " << shape.out;
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Types, SameBits, ::testing::Values(DType::fp32, DType::bf16, DType::fp16),
                         [](const auto& tested) { return label(tested.param); });

}  // namespace
}  // namespace zero::testing
