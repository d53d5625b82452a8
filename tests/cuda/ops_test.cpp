// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#include <gmock/gmock.h>

#include <map>

#include "model/vocabulary_parallel.h"
#include "ops/cuda/cuda_ops.h"
#include "ops/cuda/product_parts.h"
#include "tests/cuda/emulator/emulator.h"
#include "tests/cuda/library_attention.h"
#include "tests/errors.h"
#include "tests/ops/ops_harness.h"
#include "tests/ops/padded_logits.h"

// What operations on a GPU promise beside the contract of all devices.
namespace zero::testing {
namespace {

using ::testing::HasSubstr;
using Bytes = std::vector<std::vector<std::byte>>;

class CudaOperations : public ::testing::TestWithParam<Tested> {
 protected:
  using Body = std::function<std::vector<View>(Harness&)>;

  static Bytes run(Harness& h, const Body& body) {
    Bytes all;
    for (const View& view : body(h)) all.push_back(h.bytes(view));
    return all;
  }
  void expect_the_cpus_bits(const Body& body) const {
    Harness gpu{GetParam().alignment};
    Harness cpu(1);
    EXPECT_EQ(run(gpu, body), run(cpu, body));
  }
  DType dtype_ = GetParam().dtype;
};

// Sums over rows are in the same order, too: only sums along a row are not.
TEST_P(CudaOperations, AreTheCpusBitForBitWhereNothingIsSummedAlongARow) {
  expect_the_cpus_bits([&](Harness& h) {
    const MatrixShape s{150, 72, dtype_};
    const std::int64_t n = s.rows * s.columns;
    h.ops->prepare(s);
    h.ops->allocate_scratch();
    const View x = h.tensor(random_values(n, 1), dtype_);
    const View dy = h.tensor(random_values(n, 2), dtype_);
    const View row = h.tensor(random_values(s.columns, 3), dtype_);
    const View statistics = h.tensor(random_values(2 * s.rows, 4), DType::fp32);
    const View sum = h.empty(n, dtype_);
    const View gelu = h.empty(n, dtype_);
    const View again = h.empty(n, dtype_);
    const View dbias = h.empty(s.columns, DType::fp32);
    const View sums = h.empty(s.columns, dtype_);
    const View normed = h.empty(n, dtype_);
    const View gated = h.empty(n / 2, dtype_);
    const View dgamma = h.empty(s.columns, DType::fp32);
    const View dbeta = h.empty(s.columns, DType::fp32);
    const View dx = h.tensor(random_values(n, 5), dtype_);
    h.ops->add(x, dy, sum);
    h.ops->gelu_forward(sum, gelu);
    h.ops->norm_apply(s,
                      {.x = x, .weight = row, .bias = row, .y = normed, .statistics = statistics});
    h.ops->norm_backward(s, {x, statistics, row, dy, dx, dgamma, dbeta});
    h.ops->gelu_backward(s, sum, dy, again, dbias);
    h.ops->column_sums(s, dy, sums);
    const MatrixShape half{s.rows, s.columns / 2, dtype_};
    const View gates = h.tensor(random_values(n, 6), dtype_);
    const View gelu_gated = h.empty(n / 2, dtype_);
    const View gelu_gates = h.tensor(random_values(n, 7), dtype_);
    h.ops->gated_forward(half, Gate::silu, gates, gated);
    h.ops->gated_backward(half, Gate::silu, gates, gated);
    h.ops->gated_forward(half, Gate::gelu, gelu_gates, gelu_gated);
    h.ops->gated_backward(half, Gate::gelu, gelu_gates, gelu_gated);
    const RotaryShape r{3, 50, 2, 32, 72, dtype_};
    const View cosines = h.empty(r.table(), DType::fp32);
    const View sines = h.empty(r.table(), DType::fp32);
    h.ops->rotary_table(r, {.theta = 100}, cosines, sines);
    h.ops->rotary(r, Turn::backward, x, cosines, sines);
    return std::vector<View>{sum,    gelu,  dy,    again,      dbias,      sums,    normed, gated,
                             dgamma, dbeta, gates, gelu_gates, gelu_gated, cosines, sines,  x};
  });
}

// 2800 rows are ordered in 6 blocks, 70000 tokens by 3 digits; some tokens come often.
TEST_P(CudaOperations, AddEmbeddingGradientsInRowOrderWhateverTheVocabulary) {
  for (const std::int64_t vocabulary : {3, 300, 70000}) {
    expect_the_cpus_bits([&](Harness& h) {
      const EmbeddingShape s{4, 700, 16, vocabulary, dtype_, 1};
      h.ops->prepare(s);
      h.ops->allocate_scratch();
      std::vector<std::int32_t> ids =
          random_tokens(2800, static_cast<std::int32_t>(vocabulary + 3), 1);
      for (std::size_t i = 0; i < ids.size(); i += 5) ids[i] = 2;
      const View gradient = h.tensor(random_values(vocabulary * 16, 2), DType::fp32);
      const View positions = h.tensor(random_values(700 * 16, 3), DType::fp32);
      h.ops->embedding_backward(s, h.tokens(ids), h.tensor(random_values(2800 * 16, 4), dtype_),
                                gradient, positions);
      return std::vector<View>{gradient, positions};
    });
  }
}

TEST_P(CudaOperations, GiveTheSameBitsWhereverViewsBegin) {
  const auto body = [&](Harness& h) {
    const LogitsShape s{9, 1003, dtype_};  // rows of logits begin anywhere as it is
    const View logits = h.tensor(random_values(9 * 1003, 1), dtype_);
    const View losses = h.empty(9, DType::fp64);
    h.ops->cross_entropy_backward(s, logits, h.tokens(random_tokens(9, 1003, 2)), 0.5F, losses);
    const MatrixShape rows{9, 64, dtype_};
    const View y = h.empty(9 * 64, dtype_);
    const View statistics = h.empty(9, DType::fp32);
    h.ops->norm_forward(rows, {.x = h.tensor(random_values(9 * 64, 3), dtype_),
                               .weight = h.tensor(random_values(64, 4), dtype_),
                               .y = y,
                               .statistics = statistics});
    const HeadNormShape heads{9, 2, 1, 16, dtype_};
    h.ops->prepare(heads);
    h.ops->allocate_scratch();
    const View normed = h.empty(9 * 64, dtype_);
    const View scales = h.empty(9 * 3, DType::fp32);
    const View query = h.tensor(random_values(16, 5), dtype_);
    const View key = h.tensor(random_values(16, 6), dtype_);
    const View dquery = h.empty(16, DType::fp32);
    const View dkey = h.empty(16, DType::fp32);
    h.ops->head_norm_forward(heads, {y, query, key, normed, scales});
    h.ops->head_norm_backward(heads, {y, scales, query, key, normed, dquery, dkey});
    return std::vector<View>{logits, losses, y, statistics, normed, scales, dquery, dkey};
  };
  Harness as_asked{GetParam().alignment};
  Harness aligned;
  EXPECT_EQ(run(as_asked, body), run(aligned, body));
}

TEST_P(CudaOperations, GiveTheSameBitsWhereRowsOfLogitsArePadded) {
  Harness dense{GetParam().alignment};
  Harness padded{GetParam().alignment};
  EXPECT_EQ(head_with_rows_apart(padded, dtype_, 64), head_with_rows_apart(dense, dtype_, 45));
}

// 150 columns are two lines of 64, and 22 that are multiplied by themselves; a head of GPT-2 has
// 785 lines, and 17.
TEST_P(CudaOperations, MultiplyRowsOfLogitsInWholeLinesAndTheFewColumnsBehind) {
  constexpr std::int64_t kRows = 9, kWidth = 24, kColumns = 150, kStride = 192;
  const LinearShape s{kRows, kWidth, kColumns, WeightLayout::out_in, dtype_, DType::fp32, kStride};
  ASSERT_TRUE(cuda::has_parts(s));
  const auto [wide, rest] = cuda::parts_of(s);
  EXPECT_EQ(wide.begin, 0);
  EXPECT_EQ(wide.shape.out, 128);
  EXPECT_EQ(rest.begin, 128);
  EXPECT_EQ(rest.shape.out, 22);
  const auto head = [&](Harness& h) {
    h.ops->prepare(s, Ops::LinearUse::training);
    h.ops->allocate_scratch();
    const View x = h.tensor(random_values(kRows * kWidth, 1, dtype_), dtype_);
    const View weight = h.tensor(random_values(kColumns * kWidth, 2, dtype_), dtype_);
    const View dy = h.tensor(random_values(kRows * kStride, 3, dtype_), dtype_);
    const View y = h.empty(kRows * kStride, dtype_);
    const View dx = h.empty(kRows * kWidth, dtype_);
    const View dweight = h.empty(kColumns * kWidth, DType::fp32);
    h.ops->linear_forward(s, x, weight, View(), y);
    h.ops->linear_backward_input(s, dy, weight, dx);
    h.ops->linear_backward_weight(s, x, dy, dweight, Write::overwrite);
    h.ops->linear_backward_weight(s, x, dy, dweight, Write::add);
    std::vector<Values> all{h.read(dx), h.read(dweight)};
    for (std::int64_t row = 0; row < kRows; ++row) {
      all.push_back(h.read(y.slice(row * kStride, kColumns)));
      const auto gap = h.bytes(y.slice(row * kStride + kColumns, kStride - kColumns));
      EXPECT_EQ(gap, std::vector<std::byte>(gap.size(), std::byte{0xff})) << "row " << row;
    }
    return all;
  };
  Harness gpu{GetParam().alignment};
  Harness cpu(1);
  const std::vector<Values> found = head(gpu);
  const std::vector<Values> expected = head(cpu);
  for (std::size_t i = 0; i < found.size(); ++i) {
    expect_near(found[i], expected[i], rounding(dtype_), "result " + std::to_string(i));
  }
}

TEST(CudaOps, CutOnlyLayersWhoseRowsArePadded) {
  const auto cut = [](std::int64_t out, std::int64_t stride, WeightLayout layout) {
    return cuda::has_parts({4, 8, out, layout, DType::bf16, DType::bf16, stride});
  };
  EXPECT_TRUE(cut(50257, 50304, WeightLayout::out_in));
  EXPECT_FALSE(cut(50304, 0, WeightLayout::out_in)) << "whole lines";
  EXPECT_FALSE(cut(50257, 0, WeightLayout::out_in)) << "rows without padding";
  EXPECT_FALSE(cut(50257, 50304, WeightLayout::in_out)) << "a weight whose parts are no rows";
  EXPECT_FALSE(cut(45, 64, WeightLayout::out_in)) << "less than a line";
}

// 120,000 columns: more than a block's shared memory, where shorter rows wait for their gradients.
TEST_P(CudaOperations, TakeRowsOfLogitsOfAnyLength) {
  constexpr std::int64_t kColumns = 120'000;
  const LogitsShape s{2, kColumns, dtype_, 0, kColumns + 64};
  const auto rows = [&](Harness& h) {
    const View logits = h.tensor(random_values(2 * s.stride, 1, dtype_), dtype_);
    const View losses = h.empty(2, DType::fp64);
    h.ops->cross_entropy_backward(s, logits, h.tokens(random_tokens(2, kColumns, 2)), 1e4F, losses);
    return std::vector<Values>{h.read(losses), h.read(logits.slice(0, kColumns)),
                               h.read(logits.slice(s.stride, kColumns))};
  };
  Harness gpu{GetParam().alignment};
  Harness cpu(1);
  const std::vector<Values> found = rows(gpu);
  const std::vector<Values> expected = rows(cpu);
  for (std::size_t i = 0; i < found.size(); ++i) {
    expect_near(found[i], expected[i], i == 0 ? 1e-6 : rounding(dtype_),
                "result " + std::to_string(i));
  }
}

INSTANTIATE_TEST_SUITE_P(Types, CudaOperations, ::testing::ValuesIn(kTested),
                         [](const auto& tested) { return label(tested.param); });

TEST(CudaOps, NeitherAllocateNorWaitAfterAllocateScratch) {
  Harness h;
  const MatrixShape s{70, 64, DType::bf16};
  const LinearShape l{70, 64, 64, WeightLayout::in_out, DType::bf16, DType::fp32};
  const AttentionShape a{2, 35, 2, 16, DType::bf16, 1};
  const EmbeddingShape e{2, 35, 64, 11, DType::bf16};
  h.ops->prepare(s);
  h.ops->prepare(l, Ops::LinearUse::training);
  h.ops->prepare(a);
  h.ops->prepare(e);
  h.ops->allocate_scratch();
  const View x = h.tensor(random_values(70 * 64, 1), DType::bf16);
  const View y = h.empty(70 * 64, DType::bf16);
  const View weight = h.tensor(random_values(64 * 64, 2), DType::bf16);
  const View gradient = h.empty(64 * 64, DType::fp32);
  const View out = h.empty(70 * 32, DType::bf16);
  const View logsumexp = h.empty(70 * 2, DType::fp32);
  const View tokens = h.tokens(random_tokens(70, 11, 3));
  const View table = h.tensor(random_values(11 * 64, 4), DType::fp32);
  const std::int64_t allocations = cuda::emulated::allocations();
  const std::int64_t waits = cuda::emulated::synchronizations();
  h.ops->linear_forward(l, x, weight, View(), y);
  h.ops->attention_forward(a, y, out, logsumexp);
  h.ops->attention_backward(a, y, out, logsumexp, out, x);
  h.ops->linear_backward_weight(l, x, y, gradient, Write::overwrite);
  h.ops->column_sums(s, x, weight.slice(0, 64));
  h.ops->embedding_backward(e, tokens, x, table, View());
  EXPECT_EQ(allocations, cuda::emulated::allocations());
  EXPECT_EQ(waits, cuda::emulated::synchronizations());
}

// What `body` gave the streams, by name.
std::vector<std::string> given(Harness& h, const std::function<void()>& body) {
  h.device->compute().synchronize();
  const std::size_t before = cuda::emulated::log().size();
  body();
  std::vector<std::string> names;
  const auto log = cuda::emulated::log();
  for (std::size_t i = before; i < log.size(); ++i) names.push_back(log[i].name);
  return names;
}

struct Fusing {
  std::int64_t in, out;
  Alignment alignment;
  DType of_bias;
  bool forward, sums;  // whether the library does it with the product
};

TEST(CudaOps, GiveToProductsWhatTheLibraryTakesAndDoTheRestThemselves) {
  using Names = std::vector<std::string>;
  const Names fused{"fused product"};
  for (const Fusing& c : {Fusing{16, 24, Alignment::whole, DType::bf16, true, true},
                          Fusing{16, 21, Alignment::whole, DType::bf16, false, true},
                          Fusing{9, 24, Alignment::whole, DType::bf16, true, true},
                          Fusing{16, 24, Alignment::whole, DType::fp32, true, false},
                          Fusing{16, 24, Alignment::element, DType::bf16, false, false}}) {
    SCOPED_TRACE(fmt::format("{} x {}", c.in, c.out));
    Harness h(c.alignment);
    const LinearShape s{5, c.in, c.out, WeightLayout::in_out, DType::bf16, DType::bf16};
    h.ops->prepare(s, Ops::LinearUse::training);
    h.ops->prepare(MatrixShape{5, 24, DType::bf16});
    h.ops->allocate_scratch();
    const View x = h.tensor(random_values(5 * c.in, 1), DType::bf16);
    const View y = h.tensor(random_values(5 * c.out, 2), DType::bf16);
    const View z = h.empty(5 * c.out, DType::bf16);
    const View weight = h.tensor(random_values(c.in * c.out, 3), DType::bf16);
    const View bias = h.tensor(random_values(c.out, 4), DType::bf16);
    const View of_out = h.empty(c.out, c.of_bias);
    EXPECT_EQ(given(h,
                    [&] {
                      h.ops->linear_gelu_forward(s, {x, weight, bias, z, y});
                    }),
              c.forward ? fused : Names({"product", "gelu_forward"}));
    EXPECT_EQ(given(h, [&] { h.ops->linear_backward_parameters(s, x, y, weight, of_out); }),
              c.sums ? fused : Names({"product", "column_sums", "fold_partials"}));
  }
}

TEST(CudaOps, PlanTheScratchThatTheyTake) {
  const auto prepare = [](Ops& ops) {
    ops.prepare(MatrixShape{70, 64, DType::bf16});
    ops.prepare(AttentionShape{2, 900, 4, 16, DType::fp32, 1});
    ops.prepare(EmbeddingShape{2, 35, 64, 11, DType::bf16});
    ops.allocate_scratch();
    return ops.scratch_bytes();
  };
  Harness h;
  const auto planning = planning::open();
  cuda::CudaOps planned(*planning);
  const std::int64_t bytes = prepare(planned);
  EXPECT_EQ(bytes, prepare(*h.ops));
  EXPECT_EQ(bytes, planning->ledger().snapshot().current_of(MemoryClass::activations));
}

TEST(CudaOps, PadRowsOfLogitsSoThatTheyBeginAligned) {
  Harness h;
  EXPECT_EQ(VocabularyParallelHead::padded_columns(*h.device, 50257), 50304);
  EXPECT_EQ(VocabularyParallelHead::padded_columns(*h.device, 50304), 50304);
  EXPECT_EQ(VocabularyParallelHead::padded_columns(
                *planning::open(1, MemorySpace::device, DeviceKind::cuda), 65),
            128);
}

TEST(CudaOps, AddABiasOfAnotherTypeThanTheResult) {
  Harness h;
  const LinearShape s{3, 5, 7, WeightLayout::out_in, DType::bf16};
  h.ops->prepare(s, Ops::LinearUse::forward_fp32);
  h.ops->allocate_scratch();
  const Values bias = random_values(7, 3, DType::bf16);
  const View x = h.tensor(random_values(15, 1), DType::bf16);
  const View weight = h.tensor(random_values(35, 2), DType::bf16);
  const View plain = h.empty(21, DType::fp32);
  const View biased = h.empty(21, DType::fp32);
  h.ops->linear_forward(s, x, weight, View(), plain);
  h.ops->linear_forward(s, x, weight, h.tensor(bias, DType::bf16), biased);
  Values expected = h.read(plain);
  for (std::size_t i = 0; i < expected.size(); ++i) expected[i] += bias[i % 7];
  expect_near(h.read(biased), expected, 1e-6, "y");
}

TEST(CudaOps, KeepTheLibraryForOtherShapesThanWindowsThatItRefuses) {
  using cuda::library_attention::Kind;
  cuda::library_attention::become(Kind::refuses_windows);
  Harness h;
  AttentionShape s{1, 9, 2, 4, DType::fp32};
  h.ops->prepare(s);
  EXPECT_EQ(h.ops->note(), "");
  s.window = 3;
  h.ops->prepare(s);
  EXPECT_THAT(h.ops->note(), HasSubstr("attention of a window on cuda:0 is computed by our own "
                                       "kernels, which are slower: cuda: cuDNN: a plan"));
  h.ops->allocate_scratch();
  const Values qkv = random_values(9 * 24, 1);
  const View x = h.tensor(qkv, DType::fp32);
  const View out = h.empty(9 * 8, DType::fp32);
  const View logsumexp = h.empty(18, DType::fp32);
  h.ops->attention_forward(s, x, out, logsumexp);
  expect_near(h.read(out), reference::attention({1, 9, 2, 4, 0, 3}, qkv), 1e-6, "out");
  // The library, which computes nothing here.
  s.window = 0;
  const Values before = h.read(out);
  h.ops->attention_forward(s, x, out, logsumexp);
  EXPECT_EQ(h.read(out), before);
  cuda::library_attention::become(Kind::none);
}

TEST(CudaOps, RefuseWhatTheyCannotDo) {
  Harness h;
  EXPECT_THAT(error_of([&] {
                h.ops->prepare(AttentionShape{1, 4, 1, 264, DType::fp32});
              }),
              HasSubstr("attention on cuda:0: heads of 264 elements, expected 256 at most"));
  const View x = h.empty(12, DType::fp32);
  EXPECT_THAT(error_of([&] {
                h.ops->embedding_backward({1, 3, 4, 3, DType::fp32}, h.tokens({0, 1, 2}), x, x, x);
              }),
              HasSubstr("embedding_backward: needs 1072 bytes of scratch, 0 are allocated; "
                        "prepare() its shape before allocate_scratch()"));
}

}  // namespace
}  // namespace zero::testing
