// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#include "ops/cpu/packed_product.h"

#include <gtest/gtest.h>

#include <limits>

#include "ops/cpu/products.h"
#include "tests/ops/ops_harness.h"

namespace zero::testing {
namespace {

// What a test asks for, whether or not products would choose it on this processor.
struct KernelCase {
  const char* name;
  const cpu::packed::Kernels* kernels;
  cpu::Bf16Instructions needs;
  DType in;
};

bool on_this_processor(const KernelCase& tested) {
  return tested.kernels != nullptr && cpu::bf16_instructions() >= tested.needs;
}

class PackedProduct : public ::testing::TestWithParam<KernelCase> {};

TEST_P(PackedProduct, IsTheProductInEveryPlacement) {
  const KernelCase& tested = GetParam();
  if (!on_this_processor(tested)) GTEST_SKIP() << "not on this processor";
  constexpr std::int64_t m = 70, n = 197, k = 300;
  Harness h;
  const Values a = random_values(m * k, 1, tested.in);
  const Values b = random_values(k * n, 2, tested.in);
  const Values expected = reference::product(a, b, m, k, n);
  for (const MatrixPlacement left : {MatrixPlacement::plain, MatrixPlacement::transposed}) {
    for (const MatrixPlacement right : {MatrixPlacement::plain, MatrixPlacement::transposed}) {
      const bool plain_left = left == MatrixPlacement::plain;
      const bool plain_right = right == MatrixPlacement::plain;
      const cpu::Product product(
          {.m = m, .n = n, .k = k, .a = left, .b = right, .in = tested.in, .out = DType::fp32}, 2,
          *tested.kernels);
      const View c = h.empty(m * n, DType::fp32);
      product.run(
          {.a = h.tensor(plain_left ? a : reference::transposed(a, m, k), tested.in).data(),
           .b = h.tensor(plain_right ? b : reference::transposed(b, k, n), tested.in).data(),
           .bias = nullptr,
           .c = c.data(),
           .scratch = h.empty(product.scratch_bytes(), DType::u8).data()});
      expect_near(h.read(c), expected, rounding(DType::fp32), tested.name);
    }
  }
}

// Few columns, whose left operand is read in place where its rows are whole, and a right operand
// that was packed once: the bits are those of the plain product.
TEST_P(PackedProduct, PartsOfAPackedRightOperandAndNarrowResultsHaveTheSameBits) {
  const KernelCase& tested = GetParam();
  if (!on_this_processor(tested)) GTEST_SKIP() << "not on this processor";
  constexpr std::int64_t m = 80, n = 96, k = 256, row = 64, column = 32;
  Harness h;
  const Values all = random_values((row + k) * (column + n), 3, tested.in);
  const Values left = random_values(m * k, 4, tested.in);
  const std::int64_t stride = column + n;
  for (const MatrixPlacement a : {MatrixPlacement::plain, MatrixPlacement::transposed}) {
    const bool plain = a == MatrixPlacement::plain;
    ProductShape shape{.m = m, .n = n, .k = k, .a = a, .in = tested.in, .ldb = stride};
    ProductShape whole = shape;
    whole.n = stride;
    whole.k = row + k;
    const View b = h.tensor(all, tested.in);
    const View there = h.empty(cpu::packed_right_bytes(whole, *tested.kernels), DType::u8);
    const cpu::PackedRight packed = cpu::pack_right(whole, *tested.kernels, b.data(), there.data());
    const auto run = [&](cpu::Right right, const void* operand) {
      shape.ldb = right == cpu::Right::packed ? whole.k : stride;
      const cpu::Product product(shape, 2, *tested.kernels, right);
      const View c = h.empty(m * n, DType::fp32);
      product.run(
          {.a = h.tensor(plain ? left : reference::transposed(left, m, k), tested.in).data(),
           .b = operand,
           .bias = nullptr,
           .c = c.data(),
           .scratch = h.empty(product.scratch_bytes(), DType::u8).data()});
      return h.read(c);
    };
    const View part = b.slice(row * stride + column, 1);
    const Values in_memory = run(cpu::Right::in_memory, part.data());
    EXPECT_EQ(run(cpu::Right::packed, packed.from(row, column)), in_memory);
    Values cut(static_cast<std::size_t>(k * n));
    for (std::int64_t i = 0; i < k * n; ++i) {
      cut[static_cast<std::size_t>(i)] =
          all[static_cast<std::size_t>((row + i / n) * stride + column + i % n)];
    }
    expect_near(in_memory, reference::product(left, cut, m, k, n), rounding(DType::fp32),
                tested.name);
  }
}

// So many rows that a thread has several pieces of the same columns, in two parts of the depth.
TEST_P(PackedProduct, RowsHaveTheSameBitsTogetherAndAlone) {
  const KernelCase& tested = GetParam();
  if (!on_this_processor(tested)) GTEST_SKIP() << "not on this processor";
  constexpr std::int64_t m = 1100, n = 550, k = 850, alone = 50;
  Harness h;
  const View a = h.tensor(random_values(m * k, 5, tested.in), tested.in);
  const View b = h.tensor(random_values(k * n, 6, tested.in), tested.in);
  const auto rows = [&](std::int64_t begin, std::int64_t count, int threads) {
    const cpu::Product product({.m = count, .n = n, .k = k, .in = tested.in, .out = DType::fp32},
                               threads, *tested.kernels);
    const View c = h.empty(count * n, DType::fp32);
    product.run({.a = a.slice(begin * k, count * k).data(),
                 .b = b.data(),
                 .bias = nullptr,
                 .c = c.data(),
                 .scratch = h.empty(product.scratch_bytes(), DType::u8).data()});
    return h.read(c);
  };
  Values apart;
  for (std::int64_t begin = 0; begin < m; begin += alone) {
    const Values some = rows(begin, alone, 1);
    apart.insert(apart.end(), some.begin(), some.end());
  }
  EXPECT_EQ(rows(0, m, 1), apart);
  EXPECT_EQ(rows(0, m, 2), apart);
}

// Rows that lie whole cache lines apart may be read in place, except crowded ones, of 2048 fp32
// numbers; rows of one number more are packed. Between rows are NaNs.
TEST_P(PackedProduct, LeftOperandsInPlaceAndPackedGiveTheSameBits) {
  const KernelCase& tested = GetParam();
  if (!on_this_processor(tested)) GTEST_SKIP() << "not on this processor";
  constexpr std::int64_t n = 160;
  struct Left {
    std::int64_t m, k;
  };
  // The last panels lack rows; so does the last tile of depth; more rows than a piece has;
  // crowded rows; more than one part of the depth in each.
  for (const Left left : {Left{200, 800}, Left{70, 817}, Left{2080, 416}, Left{96, 2048}}) {
    const std::int64_t m = left.m;
    const std::int64_t k = left.k;
    Harness h;
    const Values a = random_values(m * k, 7, tested.in);
    const View b = h.tensor(random_values(k * n, 8, tested.in), tested.in);
    const auto run = [&](std::int64_t stride, int threads) {
      Values apart(static_cast<std::size_t>(m * stride), std::numeric_limits<float>::quiet_NaN());
      for (std::int64_t i = 0; i < m * k; ++i) {
        apart[static_cast<std::size_t>(i / k * stride + i % k)] = a[static_cast<std::size_t>(i)];
      }
      const cpu::Product product(
          {.m = m, .n = n, .k = k, .in = tested.in, .out = DType::fp32, .lda = stride}, threads,
          *tested.kernels);
      const View c = h.empty(m * n, DType::fp32);
      product.run({.a = h.tensor(apart, tested.in).data(),
                   .b = b.data(),
                   .bias = nullptr,
                   .c = c.data(),
                   .scratch = h.empty(product.scratch_bytes(), DType::u8).data()});
      return h.read(c);
    };
    const Values packed = run(k + 1, 1);
    for (const int threads : {1, 2, 3}) {
      EXPECT_EQ(run(round_up(k, 32), threads), packed)
          << m << " x " << k << ", " << threads << " threads";
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Kernels, PackedProduct,
                         ::testing::Values(KernelCase{"Pairs", cpu::packed::pair_kernels(),
                                                      cpu::Bf16Instructions::pairs, DType::bf16},
                                           KernelCase{"Tiles", cpu::packed::tile_kernels(),
                                                      cpu::Bf16Instructions::tiles, DType::bf16},
                                           KernelCase{"Bf16AsFp32", &cpu::packed::float_kernels(),
                                                      cpu::Bf16Instructions::none, DType::bf16},
                                           KernelCase{"Fp16AsFp32", &cpu::packed::float_kernels(),
                                                      cpu::Bf16Instructions::none, DType::fp16},
                                           KernelCase{"Fp32", &cpu::packed::float_kernels(),
                                                      cpu::Bf16Instructions::none, DType::fp32}),
                         [](const auto& tested) { return tested.param.name; });

}  // namespace
}  // namespace zero::testing
