// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#include <gmock/gmock.h>

#include "tests/errors.h"
#include "tests/ops/ops_harness.h"

namespace zero::testing {
namespace {

struct AttentionCase {
  reference::Attention shape;
  DType dtype;
  Alignment alignment = Alignment::whole;
};

// Sequences around the block of 128 rows and past a product's depth of 768, head widths that are no
// multiple of a vector, windows around the positions that are computed together.
std::vector<AttentionCase> attention_cases() {
  std::vector<AttentionCase> cases;
  for (const DType dtype : {DType::fp32, DType::bf16, DType::fp16}) {
    for (const reference::Attention& shape : {reference::Attention{1, 1, 1, 1},
                                              {2, 5, 3, 4},
                                              {1, 33, 2, 7},
                                              {1, 128, 1, 16},
                                              {2, 130, 2, 8},
                                              {2, 5, 6, 4, 2},
                                              {1, 150, 4, 8, 1},
                                              {2, 130, 4, 16, 2},
                                              {1, 300, 1, 20},
                                              {1, 800, 1, 4},
                                              {2, 5, 3, 4, 0, 1},
                                              {1, 33, 2, 7, 0, 5},
                                              {2, 130, 2, 8, 0, 31},
                                              {1, 150, 4, 8, 1, 32},
                                              {2, 300, 2, 16, 1, 33},
                                              {1, 300, 1, 20, 0, 128},
                                              {1, 420, 1, 16, 0, 129},
                                              {1, 300, 1, 8, 0, 299},
                                              {1, 800, 1, 4, 0, 200},
                                              {2, 33, 4, 16, 2, 0, 0.5},
                                              {1, 140, 2, 8, 0, 40, 0.0625}}) {
      cases.push_back({shape, dtype});
    }
    cases.push_back({{2, 37, 4, 16, 2}, dtype, Alignment::element});
    cases.push_back({{2, 37, 4, 16, 2, 6}, dtype, Alignment::element});
  }
  return cases;
}

class CausalAttention : public ::testing::TestWithParam<AttentionCase> {
 protected:
  const reference::Attention& s() const { return GetParam().shape; }
  DType dtype() const { return GetParam().dtype; }
  AttentionShape shape() const {
    return {s().batch, s().sequence, s().heads,  s().head_width,
            dtype(),   s().kv_heads, s().window, static_cast<float>(s().scale)};
  }
  std::int64_t wide() const { return s().batch * s().sequence * s().qkv_width(); }
  std::int64_t width() const { return s().batch * s().sequence * s().heads * s().head_width; }
};

TEST(AttentionReference, ItsBackwardMatchesFiniteDifferences) {
  for (const auto& [kv_heads, window, scale] :
       {std::tuple{2, 0, 0.0}, {1, 0, 0.0}, {1, 2, 0.0}, {2, 3, 0.3}}) {
    const reference::Attention shape{2, 5, 2, 3, kv_heads, window, scale};
    const Values qkv = random_values(2 * 5 * shape.qkv_width(), 1);
    const Values dout = random_values(2 * 5 * 6, 2);
    const auto f = [&](const Values& v) { return reference::attention(shape, v); };
    expect_near(reference::attention_backward(shape, qkv, dout),
                reference::differences(f, qkv, dout), 1e-7, "dqkv");
  }
}

TEST_P(CausalAttention, ForwardAndBackwardMatchTheLoops) {
  Harness h{GetParam().alignment};
  h.ops->prepare(shape());
  h.ops->allocate_scratch();
  Values qkv = random_values(wide(), 1, dtype());
  for (double& value : qkv) value *= 2;  // scores far enough apart to matter
  const Values dout = random_values(width(), 2, dtype());
  const View x = h.tensor(qkv, dtype());
  const View out = h.empty(width(), dtype());
  const View logsumexp = h.empty(s().batch * s().heads * s().sequence, DType::fp32);
  const View dqkv = h.empty(wide(), dtype());
  h.ops->attention_forward(shape(), x, out, logsumexp);
  expect_near(h.read(out), reference::attention(s(), qkv), rounding(dtype()), "out");
  h.ops->attention_backward(shape(), x, out, logsumexp, h.tensor(dout, dtype()), dqkv);
  // bf16 and fp16 round the probabilities and their gradients on the way.
  const double tolerance = dtype() == DType::fp32 ? 1e-5 : 2 * rounding(dtype());
  expect_near(h.read(dqkv), reference::attention_backward(s(), qkv, dout), tolerance, "dqkv");
}

TEST_P(CausalAttention, LaterPositionsDoNotChangeEarlierOnes) {
  Harness h{GetParam().alignment};
  h.ops->prepare(shape());
  h.ops->allocate_scratch();
  const std::int64_t c = s().heads * s().head_width;
  const Values qkv = random_values(wide(), 1, dtype());
  Values other = qkv;
  const std::int64_t last = s().sequence - 1;  // of the first sequence
  for (std::int64_t i = last * s().qkv_width(); i < (last + 1) * s().qkv_width(); ++i) {
    other[static_cast<std::size_t>(i)] = 100;
  }
  Values outs[2];
  for (const int changed : {0, 1}) {
    const View out = h.empty(width(), dtype());
    const View logsumexp = h.empty(s().batch * s().heads * s().sequence, DType::fp32);
    h.ops->attention_forward(shape(), h.tensor(changed == 1 ? other : qkv, dtype()), out,
                             logsumexp);
    outs[changed] = h.read(out);
  }
  for (std::size_t i = 0; i < static_cast<std::size_t>(last * c); ++i) {
    ASSERT_EQ(outs[0][i], outs[1][i]) << "element " << i;
  }
}

TEST_P(CausalAttention, PositionsBeforeTheWindowChangeNothing) {
  if (s().window == 0 || s().window >= s().sequence) return;
  Harness h{GetParam().alignment};
  h.ops->prepare(shape());
  h.ops->allocate_scratch();
  const std::int64_t row = s().heads * s().head_width;
  const Values qkv = random_values(wide(), 1, dtype());
  const Values dout = random_values(width(), 2, dtype());
  Values other = qkv;
  for (std::int64_t i = 0; i < s().qkv_width(); ++i) other[static_cast<std::size_t>(i)] = 100;
  Values outs[2];
  Values gradients[2];
  for (const int changed : {0, 1}) {
    const View out = h.empty(width(), dtype());
    const View logsumexp = h.empty(s().batch * s().heads * s().sequence, DType::fp32);
    const View dqkv = h.empty(wide(), dtype());
    const View x = h.tensor(changed == 1 ? other : qkv, dtype());
    h.ops->attention_forward(shape(), x, out, logsumexp);
    h.ops->attention_backward(shape(), x, out, logsumexp, h.tensor(dout, dtype()), dqkv);
    outs[changed] = h.read(out);
    gradients[changed] = h.read(dqkv);
  }
  // The last query that sees the first position is one before the window's length.
  for (auto i = static_cast<std::size_t>(s().window * row); i < outs[0].size(); ++i) {
    ASSERT_EQ(outs[0][i], outs[1][i]) << "element " << i;
  }
  const std::int64_t q = s().heads * s().head_width;
  for (std::int64_t t = s().window; t < s().batch * s().sequence; ++t) {
    for (std::int64_t i = t * s().qkv_width(); i < t * s().qkv_width() + q; ++i) {
      const auto at = static_cast<std::size_t>(i);
      ASSERT_EQ(gradients[0][at], gradients[1][at]) << "dq of row " << t;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Shapes, CausalAttention, ::testing::ValuesIn(attention_cases()),
                         [](const auto& tested) {
                           const reference::Attention& s = tested.param.shape;
                           return fmt::format(
                               "b{}_t{}_h{}_of_{}_d{}_{}{}", s.batch, s.sequence, s.heads, s.keys(),
                               s.head_width, name_of(tested.param.dtype),
                               s.window > 0
                                   ? fmt::format("_w{}{}", s.window, s.scale > 0 ? "s" : "")
                               : s.scale > 0 ? "_s"
                                             : "");
                         });

// A library's plan is of one type.
TEST(AttentionTypes, AreKeptApartInOneOps) {
  Harness h;
  const reference::Attention s{1, 128, 1, 16};
  const auto shape = [&](DType dtype) {
    return AttentionShape{s.batch, s.sequence, s.heads, s.head_width, dtype};
  };
  for (const DType dtype : kComputed) h.ops->prepare(shape(dtype));
  h.ops->allocate_scratch();
  for (const DType dtype : kComputed) {
    const Values qkv = random_values(s.batch * s.sequence * s.qkv_width(), 1, dtype);
    const View out = h.empty(s.batch * s.sequence * s.heads * s.head_width, dtype);
    h.ops->attention_forward(shape(dtype), h.tensor(qkv, dtype), out,
                             h.empty(s.batch * s.heads * s.sequence, DType::fp32));
    expect_near(h.read(out), reference::attention(s, qkv), rounding(dtype), label(dtype));
  }
}

TEST(AttentionWindow, OfTheWholeSequenceOrMoreHasTheBitsOfNone) {
  for (const DType dtype : kComputed) {
    std::vector<Values> first;
    for (const std::int64_t window : {0, 150, 151, 1 << 20}) {
      Harness h;
      const AttentionShape s{2, 150, 4, 16, dtype, 2, window};
      h.ops->prepare(s);
      h.ops->allocate_scratch();
      const View qkv = h.tensor(random_values(300 * s.qkv_width(), 1, dtype), dtype);
      const View out = h.empty(300 * 64, dtype);
      const View logsumexp = h.empty(300 * 4, DType::fp32);
      const View dqkv = h.empty(300 * s.qkv_width(), dtype);
      h.ops->attention_forward(s, qkv, out, logsumexp);
      h.ops->attention_backward(s, qkv, out, logsumexp,
                                h.tensor(random_values(300 * 64, 2, dtype), dtype), dqkv);
      const std::vector<Values> found{h.read(out), h.read(logsumexp), h.read(dqkv)};
      if (first.empty()) first = found;
      EXPECT_EQ(found, first) << label(dtype) << ", window " << window;
    }
  }
}

TEST(AttentionWindow, BelowNothingIsRefused) {
  Harness h;
  const View x = h.empty(64, DType::fp32);
  EXPECT_THAT(
      error_of([&] {
        h.ops->attention_forward({1, 4, 1, 4, DType::fp32, 1, -1}, x, x, x);
      }),
      ::testing::HasSubstr("attention_forward: a window of -1 positions, expected at least 1"));
}

TEST(AttentionScratch, GrowsWithTheSequenceNotItsSquare) {
  const auto bytes = [](std::int64_t sequence) {
    Harness h;
    h.ops->prepare(AttentionShape{1, sequence, 2, 16, DType::fp32});
    return h.ops->scratch_bytes();
  };
  EXPECT_LE(bytes(2048), 2 * bytes(1024) + 4096);
}

}  // namespace
}  // namespace zero::testing
