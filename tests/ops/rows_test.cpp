// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#include "tests/ops/ops_harness.h"

// Norm, GELU, sums, embedding and loss against the plain loops.
namespace zero::testing {
namespace {

class Rows : public ::testing::TestWithParam<Tested> {
 protected:
  DType dtype_ = GetParam().dtype;
  Harness h_{GetParam().alignment};
};

struct Norm {
  Values x, gamma, beta, dy;
};

Norm random_norm(std::int64_t rows, std::int64_t columns, DType dtype) {
  return {random_values(rows * columns, 1, dtype), random_values(columns, 2, dtype),
          random_values(columns, 3, dtype), random_values(rows * columns, 4, dtype)};
}

TEST_P(Rows, LayerNormMatchesTheLoops) {
  for (const std::int64_t columns : {1, 5, 16, 67, 768}) {
    const std::int64_t rows = 9;
    const Norm n = random_norm(rows, columns, dtype_);
    const View y = h_.empty(rows * columns, dtype_);
    const View statistics = h_.empty(2 * rows, DType::fp32);
    h_.ops->norm_forward({rows, columns, dtype_}, {.x = h_.tensor(n.x, dtype_),
                                                   .weight = h_.tensor(n.gamma, dtype_),
                                                   .bias = h_.tensor(n.beta, dtype_),
                                                   .y = y,
                                                   .statistics = statistics});
    expect_near(h_.read(y), reference::layer_norm(n.x, n.gamma, n.beta, columns), rounding(dtype_),
                fmt::format("{} columns", columns));
  }
}

TEST_P(Rows, LayerNormAddsItsDeltaFirstAndCanBeAppliedAgain) {
  const std::int64_t rows = 5;
  const std::int64_t columns = 37;
  const Norm n = random_norm(rows, columns, dtype_);
  const View sum = h_.empty(rows * columns, dtype_);
  NormForward o{.x = h_.tensor(n.x, dtype_),
                .delta = h_.tensor(n.dy, dtype_),
                .sum = sum,
                .weight = h_.tensor(n.gamma, dtype_),
                .bias = h_.tensor(n.beta, dtype_),
                .y = h_.empty(rows * columns, dtype_),
                .statistics = h_.empty(2 * rows, DType::fp32)};
  h_.ops->norm_forward({rows, columns, dtype_}, o);
  expect_near(h_.read(sum), sum_of(n.x, n.dy), rounding(dtype_), "sum");
  const Values y = h_.read(o.y);
  expect_near(y, reference::layer_norm(h_.read(sum), n.gamma, n.beta, columns), rounding(dtype_),
              "y");
  o.x = sum;
  o.delta = o.sum = View();
  o.y = h_.empty(rows * columns, dtype_);
  h_.ops->norm_apply({rows, columns, dtype_}, o);
  EXPECT_EQ(h_.read(o.y), y);
}

TEST_P(Rows, LayerNormBackwardMatchesFiniteDifferences) {
  const std::int64_t rows = 131;  // more than two chunks of rows
  const std::int64_t columns = 6;
  const MatrixShape shape{rows, columns, dtype_};
  const Norm n = random_norm(rows, columns, dtype_);
  const Values residual = random_values(rows * columns, 5, dtype_);
  h_.ops->prepare(shape);
  h_.ops->allocate_scratch();
  const View x = h_.tensor(n.x, dtype_);
  const View gamma = h_.tensor(n.gamma, dtype_);
  const View statistics = h_.empty(2 * rows, DType::fp32);
  h_.ops->norm_forward(shape, {.x = x,
                               .weight = gamma,
                               .bias = h_.tensor(n.beta, dtype_),
                               .y = h_.empty(rows * columns, dtype_),
                               .statistics = statistics});
  const View dx = h_.tensor(residual, dtype_);
  const View dgamma = h_.empty(columns, dtype_);
  const View dbeta = h_.empty(columns, dtype_);
  h_.ops->norm_backward(shape, {x, statistics, gamma, h_.tensor(n.dy, dtype_), dx, dgamma, dbeta});
  const auto differences = [&](const auto& f, const Values& at) {
    return reference::differences(f, at, n.dy);
  };
  const auto of_x = [&](const Values& v) {
    return reference::layer_norm(v, n.gamma, n.beta, columns);
  };
  const auto of_gamma = [&](const Values& v) {
    return reference::layer_norm(n.x, v, n.beta, columns);
  };
  const double tolerance = dtype_ == DType::fp32 ? 1e-5 : rounding(dtype_);
  expect_near(h_.read(dx), sum_of(residual, differences(of_x, n.x)), tolerance, "dx");
  expect_near(h_.read(dgamma), differences(of_gamma, n.gamma), tolerance, "dgamma");
  expect_near(h_.read(dbeta), reference::column_sums(n.dy, rows, columns), tolerance, "dbeta");
}

TEST_P(Rows, GeluMatchesTheLoopsFarOutToo) {
  Values x = random_values(101, 1, dtype_);
  for (std::size_t i = 0; i < x.size(); i += 3) x[i] *= 8;
  x.insert(x.end(), {0, -0.0, 30, -30, 1000, -1000, -3.5, 3.5});
  const View y = h_.empty(static_cast<std::int64_t>(x.size()), dtype_);
  h_.ops->gelu_forward(h_.tensor(x, dtype_), y);
  const Values found = h_.read(y);
  const Values expected = reference::gelu(x);
  for (std::size_t i = 0; i < x.size(); ++i) {
    EXPECT_NEAR(found[i], expected[i], rounding(dtype_) * std::max(0.1, std::abs(expected[i])))
        << "gelu(" << x[i] << ")";
  }
}

TEST_P(Rows, GeluBackwardMatchesFiniteDifferencesAndSumsTheBias) {
  const std::int64_t rows = 70;
  const std::int64_t columns = 19;
  Values x = random_values(rows * columns, 1, dtype_);
  for (std::size_t i = 0; i < x.size(); i += 2) x[i] *= 4;
  const Values dy = random_values(rows * columns, 2, dtype_);
  h_.ops->prepare(MatrixShape{rows, columns, dtype_});
  h_.ops->allocate_scratch();
  const View dx = h_.tensor(dy, dtype_);
  const View y = h_.empty(rows * columns, dtype_);
  const View dbias = h_.empty(columns, dtype_);
  h_.ops->gelu_backward({rows, columns, dtype_}, h_.tensor(x, dtype_), dx, y, dbias);
  Values expected;
  for (std::size_t i = 0; i < x.size(); ++i) {
    expected.push_back(reference::differences(reference::gelu, {x[i]}, {dy[i]})[0]);
  }
  expect_near(h_.read(dx), expected, rounding(dtype_), "dx");
  expect_near(h_.read(y), reference::gelu(x), rounding(dtype_), "y");
  expect_near(h_.read(dbias), reference::column_sums(expected, rows, columns), rounding(dtype_),
              "dbias");
  const View alone = h_.tensor(dy, dtype_);
  const View sums = h_.empty(columns, dtype_);
  h_.ops->gelu_backward({rows, columns, dtype_}, h_.tensor(x, dtype_), alone, View(), sums);
  EXPECT_EQ(h_.read(alone), h_.read(dx)) << "without y";
  EXPECT_EQ(h_.read(sums), h_.read(dbias)) << "without y";
  const View in_place = h_.tensor(x, dtype_);
  const View again = h_.tensor(dy, dtype_);
  h_.ops->gelu_backward({rows, columns, dtype_}, in_place, again, in_place, sums);
  EXPECT_EQ(h_.read(in_place), h_.read(y)) << "y in the place of x";
  EXPECT_EQ(h_.read(again), h_.read(dx)) << "y in the place of x";
  EXPECT_EQ(h_.read(sums), h_.read(dbias)) << "y in the place of x";
}

TEST_P(Rows, ColumnSumsAddAllRowsInBothGradientTypes) {
  for (const std::int64_t rows : {1, 63, 64, 65, 200}) {
    const std::int64_t columns = 21;
    const Values x = random_values(rows * columns, 1, dtype_);
    h_.ops->prepare(MatrixShape{rows, columns, dtype_});
    h_.ops->allocate_scratch();
    for (const DType out : {dtype_, DType::fp32}) {
      const View sums = h_.empty(columns, out);
      h_.ops->column_sums({rows, columns, dtype_}, h_.tensor(x, dtype_), sums);
      expect_near(h_.read(sums), reference::column_sums(x, rows, columns), rounding(out),
                  fmt::format("{} rows", rows));
    }
  }
}

TEST_P(Rows, AddRoundsTheSumOnceAndMayWriteOverAnOperand) {
  const Values a = random_values(45, 1, dtype_);
  const Values b = random_values(45, 2, dtype_);
  const View x = h_.tensor(a, dtype_);
  h_.ops->add(x, h_.tensor(b, dtype_), x);
  EXPECT_EQ(h_.read(x), h_.read(h_.tensor(sum_of(a, b), dtype_)));
}

TEST_P(Rows, EmbeddingAddsTokenAndPositionAndItsBackwardAddsRepeatedTokens) {
  const EmbeddingShape shape{3, 4, 70, 5, dtype_};
  const std::int64_t rows = 12;
  const std::int64_t context = 6;  // a table longer than the sequence
  const Values tokens_table = random_values(5 * 70, 1, dtype_);
  const Values positions_table = random_values(context * 70, 2, dtype_);
  const std::vector<std::int32_t> ids = random_tokens(rows, 5, 3);
  const Values dx = random_values(rows * 70, 4, dtype_);
  const View tokens = h_.tokens(ids);
  const View x = h_.empty(rows * 70, dtype_);
  h_.ops->embedding_forward(shape, tokens, h_.tensor(tokens_table, dtype_),
                            h_.tensor(positions_table, dtype_), x);
  const Values start_tokens = random_values(5 * 70, 5);
  const Values start_positions = random_values(context * 70, 6);
  const View dtokens = h_.tensor(start_tokens, DType::fp32);
  const View dpositions = h_.tensor(start_positions, DType::fp32);
  h_.ops->prepare(shape);
  h_.ops->allocate_scratch();
  h_.ops->embedding_backward(shape, tokens, h_.tensor(dx, dtype_), dtokens, dpositions);

  Values expected_x(static_cast<std::size_t>(rows * 70));
  Values expected_tokens = start_tokens;
  Values expected_positions = start_positions;
  for (std::size_t i = 0; i < expected_x.size(); ++i) {
    const std::size_t row = i / 70;
    const std::size_t of_token = static_cast<std::size_t>(ids[row]) * 70 + i % 70;
    const std::size_t of_position = row % 4 * 70 + i % 70;
    expected_x[i] = tokens_table[of_token] + positions_table[of_position];
    expected_tokens[of_token] += dx[i];
    expected_positions[of_position] += dx[i];
  }
  expect_near(h_.read(x), expected_x, rounding(dtype_), "x");
  expect_near(h_.read(dtokens), expected_tokens, 1e-6, "token gradient");
  expect_near(h_.read(dpositions), expected_positions, 1e-6, "position gradient");
}

TEST_P(Rows, CrossEntropyAndItsGradientMatchTheLoops) {
  for (const std::int64_t columns : {2, 16, 97, 1000}) {
    const std::int64_t rows = 7;
    Values logits = random_values(rows * columns, 1, dtype_);
    for (double& value : logits) value *= 16;
    logits[3] = 64;  // one probability of almost 1
    const auto targets = random_tokens(rows, static_cast<std::int32_t>(columns), 2);
    const LogitsShape shape{rows, columns, dtype_};
    const View losses = h_.empty(rows, DType::fp64);
    const View again = h_.empty(rows, DType::fp64);
    const View gradient = h_.tensor(logits, dtype_);
    h_.ops->cross_entropy_forward(shape, gradient, h_.tokens(targets), losses);
    h_.ops->cross_entropy_backward(shape, gradient, h_.tokens(targets), 0.25F, again);
    expect_near(h_.read(losses), reference::cross_entropy(logits, targets, columns), 1e-6, "loss");
    EXPECT_EQ(h_.read(again), h_.read(losses));
    const auto loss = [&](const Values& v) {
      return reference::cross_entropy(v, targets, columns);
    };
    if (columns < 1000) {
      const Values weights(static_cast<std::size_t>(rows), 0.25);
      expect_near(h_.read(gradient), reference::differences(loss, logits, weights),
                  rounding(dtype_), fmt::format("gradient of {} columns", columns));
    }
  }
}

TEST_P(Rows, ANanInARowOfLogitsMakesItsLossNan) {
  Values logits = random_values(40, 1, dtype_);
  logits[25] = std::nan("");
  const View losses = h_.empty(2, DType::fp64);
  h_.ops->cross_entropy_forward({2, 20, dtype_}, h_.tensor(logits, dtype_), h_.tokens({1, 2}),
                                losses);
  EXPECT_FALSE(std::isnan(h_.read(losses)[0]));
  EXPECT_TRUE(std::isnan(h_.read(losses)[1]));
}

INSTANTIATE_TEST_SUITE_P(Types, Rows, ::testing::ValuesIn(kTested),
                         [](const auto& tested) { return label(tested.param); });

TEST(Sum, AddsLossesInOrder) {
  Harness h;
  const View losses = h.tensor({1e16, 1, -1e16}, DType::fp64);
  const View total = h.empty(1, DType::fp64);
  h.ops->sum(losses, total);
  EXPECT_EQ(h.read(total)[0], (1e16 + 1) - 1e16);
}

}  // namespace
}  // namespace zero::testing
