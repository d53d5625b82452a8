// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#include <gmock/gmock.h>

#include <algorithm>

#include "base/error.h"
#include "tests/errors.h"
#include "tests/ops/ops_harness.h"

// RMS norm, SwiGLU, rotary embeddings and tables without positions against the plain loops.
namespace zero::testing {
namespace {

using ::testing::HasSubstr;

class DecoderRows : public ::testing::TestWithParam<Tested> {
 protected:
  DType dtype_ = GetParam().dtype;
  Harness h_{GetParam().alignment};
};

TEST_P(DecoderRows, RmsNormMatchesTheLoopsAddsItsDeltaFirstAndCanBeAppliedAgain) {
  for (const std::int64_t columns : {1, 5, 16, 67, 768}) {
    const std::int64_t rows = 9;
    const MatrixShape shape{rows, columns, dtype_};
    const Values weight = random_values(columns, 3, dtype_);
    const View sum = h_.empty(rows * columns, dtype_);
    NormForward o{.x = h_.tensor(random_values(rows * columns, 1, dtype_), dtype_),
                  .delta = h_.tensor(random_values(rows * columns, 2, dtype_), dtype_),
                  .sum = sum,
                  .weight = h_.tensor(weight, dtype_),
                  .y = h_.empty(rows * columns, dtype_),
                  .statistics = h_.empty(rows, DType::fp32),
                  .epsilon = 1e-3F};
    h_.ops->norm_forward(shape, o);
    expect_near(h_.read(sum), sum_of(h_.read(o.x), h_.read(o.delta)), rounding(dtype_), "sum");
    const Values y = h_.read(o.y);
    expect_near(y, reference::rms_norm(h_.read(sum), weight, columns, 1e-3), rounding(dtype_),
                fmt::format("{} columns", columns));
    o.x = sum;
    o.delta = o.sum = View();
    o.y = h_.empty(rows * columns, dtype_);
    h_.ops->norm_apply(shape, o);
    EXPECT_EQ(h_.read(o.y), y);
    o.y = h_.empty(rows * columns, dtype_);
    h_.ops->norm_forward(shape, o);
    EXPECT_EQ(h_.read(o.y), y) << "without a delta";
    o.y = o.x;
    h_.ops->norm_forward(shape, o);
    EXPECT_EQ(h_.read(o.y), y) << "in place";
  }
}

TEST_P(DecoderRows, RmsNormBackwardMatchesFiniteDifferences) {
  const std::int64_t rows = 131;  // more than two chunks of rows
  const std::int64_t columns = 6;
  const MatrixShape shape{rows, columns, dtype_};
  const Values x = random_values(rows * columns, 1, dtype_);
  const Values weight = random_values(columns, 2, dtype_);
  const Values dy = random_values(rows * columns, 3, dtype_);
  const Values residual = random_values(rows * columns, 4, dtype_);
  h_.ops->prepare(shape);
  h_.ops->allocate_scratch();
  const View statistics = h_.empty(rows, DType::fp32);
  const View in = h_.tensor(x, dtype_);
  const View w = h_.tensor(weight, dtype_);
  h_.ops->norm_forward(shape, {.x = in,
                               .weight = w,
                               .y = h_.empty(rows * columns, dtype_),
                               .statistics = statistics,
                               .epsilon = 1e-2F});
  for (const DType of_weight : {dtype_, DType::fp32}) {
    const View dx = h_.tensor(residual, dtype_);
    const View dweight = h_.empty(columns, of_weight);
    h_.ops->norm_backward(shape, {in, statistics, w, h_.tensor(dy, dtype_), dx, dweight});
    const auto of_x = [&](const Values& v) {
      return reference::rms_norm(v, weight, columns, 1e-2);
    };
    const auto of_w = [&](const Values& v) { return reference::rms_norm(x, v, columns, 1e-2); };
    const double tolerance = dtype_ == DType::fp32 ? 1e-5 : rounding(dtype_);
    expect_near(h_.read(dx), sum_of(residual, reference::differences(of_x, x, dy)), tolerance,
                "dx");
    expect_near(h_.read(dweight), reference::differences(of_w, weight, dy), tolerance, "dweight");
  }
}

// Of weights whose 1 + w is exact: the other norm's bits with those weights.
TEST_P(DecoderRows, NormsOfOnePlusTheirWeightAreThoseOfTheSum) {
  const MatrixShape shape{70, 24, dtype_};
  const HeadNormShape heads{70, 1, 1, 8, dtype_};
  h_.ops->prepare(shape);
  h_.ops->prepare(heads);
  h_.ops->allocate_scratch();
  Values stored;
  Values whole;
  for (int i = 0; i < 24; ++i) {
    stored.push_back((i - 11) / 16.0);
    whole.push_back(1 + stored.back());
  }
  const auto bytes = [&](const Values& weight, bool plus_one) {
    const View x = h_.tensor(random_values(70 * 24, 1), dtype_);
    const View w = h_.tensor(weight, dtype_);
    const View y = h_.empty(70 * 24, dtype_), again = h_.empty(70 * 24, dtype_);
    const View statistics = h_.empty(70, DType::fp32), figures = h_.empty(140, DType::fp32);
    const View dx = h_.tensor(random_values(70 * 24, 2), dtype_);
    const View dweight = h_.empty(24, DType::fp32);
    const View of_heads = h_.empty(70 * 24, dtype_);
    const View query = w.slice(0, 8), key = w.slice(8, 8);
    const View dquery = h_.empty(8, DType::fp32), dkey = h_.empty(8, DType::fp32);
    NormForward o{.x = x, .weight = w, .y = y, .statistics = statistics, .plus_one = plus_one};
    h_.ops->norm_forward(shape, o);
    o.y = again;
    h_.ops->norm_apply(shape, o);
    h_.ops->norm_backward(shape, {.x = x,
                                  .statistics = statistics,
                                  .weight = w,
                                  .dy = y,
                                  .dx = dx,
                                  .dweight = dweight,
                                  .plus_one = plus_one});
    h_.ops->head_norm_forward(heads, {.x = x,
                                      .query_weight = query,
                                      .key_weight = key,
                                      .y = of_heads,
                                      .statistics = figures,
                                      .plus_one = plus_one});
    const Values forward = h_.read(of_heads);
    h_.ops->head_norm_backward(heads, {x, figures, query, key, of_heads, dquery, dkey, plus_one});
    std::vector<Values> all{forward};
    for (const View& view : {y, again, dx, dweight, of_heads, dquery, dkey}) {
      all.push_back(h_.read(view));
    }
    return all;
  };
  EXPECT_EQ(bytes(stored, true), bytes(whole, false));
  EXPECT_NE(bytes(stored, true), bytes(stored, false));
}

/// The heads of q and k of rows of q, k and v by rms_norm, each with its weight.
Values norms_of_heads(const HeadNormShape& s, const Values& x, const Values& query,
                      const Values& key) {
  Values y = x;
  for (std::int64_t row = 0; row < s.rows; ++row) {
    for (std::int64_t head = 0; head < s.normed_heads(); ++head) {
      const auto at = static_cast<std::ptrdiff_t>(row * s.qkv_width() + head * s.head_width);
      const Values of_head(x.begin() + at, x.begin() + at + s.head_width);
      std::ranges::copy(
          reference::rms_norm(of_head, head < s.heads ? query : key, s.head_width, 1e-2),
          y.begin() + at);
    }
  }
  return y;
}

TEST_P(DecoderRows, NormsOfHeadsMatchTheLoopsAndAreTheSameInPlace) {
  for (const std::int64_t width : {2, 6, 8, 30, 64, 136, 300}) {
    const HeadNormShape s{5, 6, 2, width, dtype_};
    const Values x = random_values(s.count(), 1, dtype_);
    const Values query = random_values(width, 2, dtype_);
    const Values key = random_values(width, 3, dtype_);
    const View y = h_.empty(s.count(), dtype_);
    const View in = h_.tensor(x, dtype_);
    const View of_query = h_.tensor(query, dtype_);
    const View of_key = h_.tensor(key, dtype_);
    const View statistics = h_.empty(s.rows * 8, DType::fp32);
    h_.ops->head_norm_forward(s, {in, of_query, of_key, y, statistics, 1e-2F});
    const Values found = h_.read(y);
    expect_near(found, norms_of_heads(s, x, query, key), rounding(dtype_),
                fmt::format("heads of {}", width));
    EXPECT_EQ(h_.read(in), x);
    h_.ops->head_norm_forward(
        s, {.x = in, .query_weight = of_query, .key_weight = of_key, .y = in, .epsilon = 1e-2F});
    EXPECT_EQ(h_.read(in), found) << "in place";
  }
}

TEST_P(DecoderRows, NormsOfHeadsHaveGradientsThatMatchFiniteDifferences) {
  const HeadNormShape s{131, 3, 1, 6, dtype_};  // more than two chunks of rows
  const Values x = random_values(s.count(), 1, dtype_);
  const Values query = random_values(6, 2, dtype_);
  const Values key = random_values(6, 3, dtype_);
  const Values dy = random_values(s.count(), 4, dtype_);
  h_.ops->prepare(s);
  h_.ops->allocate_scratch();
  const View in = h_.tensor(x, dtype_);
  const View of_query = h_.tensor(query, dtype_);
  const View of_key = h_.tensor(key, dtype_);
  const View statistics = h_.empty(s.rows * 4, DType::fp32);
  h_.ops->head_norm_forward(s,
                            {in, of_query, of_key, h_.empty(s.count(), dtype_), statistics, 1e-2F});
  const double tolerance = dtype_ == DType::fp32 ? 1e-5 : rounding(dtype_);
  for (const DType of_weight : {dtype_, DType::fp32}) {
    const View dx = h_.tensor(dy, dtype_);
    const View dquery = h_.empty(6, of_weight);
    const View dkey = h_.empty(6, of_weight);
    h_.ops->head_norm_backward(s, {in, statistics, of_query, of_key, dx, dquery, dkey});
    const auto of_x = [&](const Values& v) { return norms_of_heads(s, v, query, key); };
    const auto of_q = [&](const Values& v) { return norms_of_heads(s, x, v, key); };
    const auto of_k = [&](const Values& v) { return norms_of_heads(s, x, query, v); };
    expect_near(h_.read(dx), reference::differences(of_x, x, dy), tolerance, "dx");
    expect_near(h_.read(dquery), reference::differences(of_q, query, dy), tolerance, "dquery");
    expect_near(h_.read(dkey), reference::differences(of_k, key, dy), tolerance, "dkey");
  }
}

TEST_P(DecoderRows, AScaleIsRoundedToTheTypeOfWhatItMultiplies) {
  for (const std::int64_t count : {1, 7, 16, 1001}) {
    for (const float factor : {33.9411255F, 1e-3F, 2.0F}) {  // sqrt(1152), Gemma 3 1B's
      const Values x = random_values(count, 1, dtype_);
      const View in = h_.tensor(x, dtype_);
      h_.ops->scale(in, factor);
      Values expected;
      for (const double value : x) {
        const float product = static_cast<float>(value) * rounded_to(dtype_, factor);
        expected.push_back(rounded_to(dtype_, product));
      }
      EXPECT_EQ(h_.read(in), expected) << count << " times " << factor;
    }
  }
}

TEST_P(DecoderRows, GatedUnitsMatchTheLoopsAndTheirBackwardFiniteDifferences) {
  for (const Gate gate : {Gate::silu, Gate::gelu}) {
    for (const std::int64_t columns : {1, 7, 16, 45}) {
      const std::int64_t rows = 11;
      const MatrixShape shape{rows, columns, dtype_};
      Values x = random_values(2 * rows * columns, 1, dtype_);
      for (std::size_t i = 0; i < x.size(); i += 3) x[i] *= 8;
      x[0] = 64;  // far out, both ways
      x[static_cast<std::size_t>(2 * columns)] = -128;
      const Values dy = random_values(rows * columns, 2, dtype_);
      const auto f = [&](const Values& v) {
        return gate == Gate::silu ? reference::swiglu(v, columns) : reference::geglu(v, columns);
      };
      const Values expected = f(x);
      const View in = h_.tensor(x, dtype_);
      const View y = h_.empty(rows * columns, dtype_);
      h_.ops->gated_forward(shape, gate, in, y);
      expect_near(h_.read(y), expected, rounding(dtype_), "y");
      const View again = h_.tensor(dy, dtype_);
      h_.ops->gated_backward(shape, gate, in, again);
      EXPECT_EQ(h_.read(again), h_.read(y)) << "y again";
      const double tolerance = std::max(rounding(dtype_), 1e-5);
      expect_near(h_.read(in), reference::differences(f, x, dy), tolerance, "dx");
    }
  }
}

// Position by position, pair by pair; what is behind the turned heads stays.
TEST_P(DecoderRows, RotaryTurnsPairsByTheirPositionAndBackAgain) {
  for (const std::int64_t width : {2, 6, 40}) {
    const RotaryShape s{2, 5, 3, width, 4 * width, dtype_};
    const RotaryAngles angles{.theta = 50};
    const View cosines = h_.empty(s.table(), DType::fp32);
    const View sines = h_.empty(s.table(), DType::fp32);
    h_.ops->rotary_table(s, angles, cosines, sines);
    const Values x = random_values(2 * 5 * 4 * width, 1, dtype_);
    Values expected = x;
    for (std::int64_t i = 0; i < 2 * 5 * 3 * width / 2; ++i) {
      const std::int64_t pair = i % (width / 2);
      const std::int64_t head = i / (width / 2) % 3;
      const std::int64_t row = i / (width / 2) / 3;
      const double angle =
          static_cast<double>(row % 5) *
          std::pow(50.0, -2.0 * static_cast<double>(pair) / static_cast<double>(width));
      const auto at = static_cast<std::size_t>(row * 4 * width + head * width + pair);
      const auto other = at + static_cast<std::size_t>(width / 2);
      expected[at] = x[at] * std::cos(angle) - x[other] * std::sin(angle);
      expected[other] = x[other] * std::cos(angle) + x[at] * std::sin(angle);
    }
    const View turned = h_.tensor(x, dtype_);
    h_.ops->rotary(s, Turn::forward, turned, cosines, sines);
    expect_near(h_.read(turned), expected, rounding(dtype_), "turned");
    // A rotation's gradient is the rotation back.
    h_.ops->rotary(s, Turn::backward, turned, cosines, sines);
    expect_near(h_.read(turned), x, 2 * rounding(dtype_), "turned back");
  }
}

TEST_P(DecoderRows, EmbeddingsWithoutPositionsAreRowsOfTheirTable) {
  const EmbeddingShape shape{3, 4, 70, 5, dtype_};
  const Values table = random_values(5 * 70, 1, dtype_);
  const std::vector<std::int32_t> ids = random_tokens(12, 5, 3);
  const Values dx = random_values(12 * 70, 4, dtype_);
  const View tokens = h_.tokens(ids);
  const View x = h_.empty(12 * 70, dtype_);
  h_.ops->embedding_forward(shape, tokens, h_.tensor(table, dtype_), View(), x);
  const Values start = random_values(5 * 70, 5);
  const View gradient = h_.tensor(start, DType::fp32);
  h_.ops->prepare(shape);
  h_.ops->allocate_scratch();
  h_.ops->embedding_backward(shape, tokens, h_.tensor(dx, dtype_), gradient, View());
  Values expected_x;
  Values expected = start;
  for (std::size_t i = 0; i < dx.size(); ++i) {
    const std::size_t at = static_cast<std::size_t>(ids[i / 70]) * 70 + i % 70;
    expected_x.push_back(table[at]);
    expected[at] += dx[i];
  }
  EXPECT_EQ(h_.read(x), expected_x);
  expect_near(h_.read(gradient), expected, 1e-6, "gradient");
}

INSTANTIATE_TEST_SUITE_P(Types, DecoderRows, ::testing::ValuesIn(kTested),
                         [](const auto& tested) { return label(tested.param); });

// Figures of transformers 5.23, LlamaRotaryEmbedding with rope_type "llama3".
TEST(RotaryAngles, ScaleAsLlama3Does) {
  const RotaryAngles angles{.theta = 500000, .scaling = RotaryScaling{}};
  const std::vector<double> found = angles.frequencies(128);
  ASSERT_EQ(found.size(), 64U);
  EXPECT_EQ(found[0], 1);
  EXPECT_NEAR(found[10] / std::pow(500000.0, -20.0 / 128), 1, 1e-12) << "short turns stay";
  EXPECT_NEAR(found[32], 5.248460220173001e-04, 1e-9) << "a blend";
  EXPECT_NEAR(found[63] / std::pow(500000.0, -126.0 / 128), 1.0 / 8, 1e-12) << "long turns slow";
}

// transformers' rope_type "linear" divides every frequency.
TEST(RotaryAngles, StretchEvenly) {
  const std::vector<double> plain = RotaryAngles{.theta = 1e6}.frequencies(256);
  const std::vector<double> found = RotaryAngles{.theta = 1e6, .linear_factor = 8}.frequencies(256);
  ASSERT_EQ(found.size(), 128U);
  for (std::size_t i = 0; i < found.size(); ++i) EXPECT_EQ(found[i], plain[i] / 8);
}

TEST(RotaryAngles, NameWhatIsOutOfRange) {
  const auto refusal = [](const RotaryAngles& angles) {
    return error_of([&] { angles.validate(); });
  };
  EXPECT_THAT(refusal({.theta = 0}), HasSubstr("model.rope_theta is 0, expected more than 0"));
  EXPECT_THAT(refusal({.linear_factor = 0.5}),
              HasSubstr("model.rope_factor is 0.5, expected 1 or more"));
  EXPECT_THAT(refusal({.scaling = RotaryScaling{.factor = 0.5}}),
              HasSubstr("model.rope_scaling.factor is 0.5, expected 1 or more"));
  EXPECT_THAT(refusal({.scaling = RotaryScaling{.low_frequency = 4}}),
              HasSubstr("low_freq_factor is 4 and high_freq_factor 4, expected 0 < low < high"));
  EXPECT_THAT(refusal({.scaling = RotaryScaling{.original_context = 0}}),
              HasSubstr("original_max_position_embeddings is 0, expected 1 or more"));
}

TEST(DecoderOps, RefuseWhatDoesNotFit) {
  Harness h;
  const View x = h.tensor(random_values(12, 1), DType::fp32);
  EXPECT_THAT(error_of([&] {
                h.ops->attention_forward({1, 1, 3, 2, DType::fp32, 2}, x, x, x);
              }),
              HasSubstr("attention_forward: 3 heads, expected a multiple of the 2 of keys"));
  EXPECT_THAT(error_of([&] {
                h.ops->rotary({1, 1, 1, 3, 12, DType::fp32}, Turn::forward, x, x, x);
              }),
              HasSubstr("rotary: heads of 3 elements, expected an even number"));
  EXPECT_THAT(error_of([&] {
                h.ops->gated_forward({2, 4, DType::fp32}, Gate::silu, x, x);
              }),
              HasSubstr("swiglu_forward: operand x holds 12 x fp32, expected 16 x fp32"));
  EXPECT_THAT(
      error_of([&] {
        h.ops->norm_apply(
            {3, 4, DType::fp32},
            {.x = x, .delta = x, .weight = x.slice(0, 4), .y = x, .statistics = x.slice(0, 3)});
      }),
      HasSubstr("rms_norm_apply: takes no delta"));
}

}  // namespace
}  // namespace zero::testing
